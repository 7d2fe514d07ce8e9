"""Whether a cell uses a GPU library, told from its text.

Pure: the text and what its names are in, the decision and its reason out.  Imports, definitions and
readouts (``print(loss)``, ``loss.item()``, a plot) use none, so that the GPU falls idle while a
person reads; whatever *asks* for a GPU runs where there is one, so nothing is lied to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from gpulease.kernel.auto.kinds import Kind, framework, is_installed

#: What a name is, and by which library.
Lookup = Callable[[str], tuple[Kind, str]]

#: Methods that only read what is there.
_READOUTS = frozenset((
    "item", "tolist", "numpy", "cpu", "detach", "size", "dim", "numel", "element_size", "keys",
    "values", "items", "parameters", "named_parameters", "children", "modules", "named_modules",
    "state_dict", "get_config", "summary", "count_params", "get_last_lr", "append", "extend", "get",
    "is_contiguous", "data_ptr", "type", "format", "to_pandas", "to_numpy", "get_weights", "index",
))  # fmt: skip
#: Calls of a library that set something which travels.
_SETTINGS = frozenset((
    "manual_seed", "set_printoptions", "set_default_dtype", "use_deterministic_algorithms",
    "set_seed", "set_random_seed", "set_float32_matmul_precision", "set_verbosity_error",
    "set_verbosity", "no_grad", "inference_mode", "enable_grad", "set_grad_enabled",
))  # fmt: skip
#: Builtins and the like that only look at what they are given.
_LOOKS = frozenset((
    "print", "display", "len", "float", "int", "str", "repr", "bool", "type", "isinstance", "id",
    "list", "tuple", "dict", "set", "zip", "enumerate", "range", "sorted", "format", "hasattr",
    "getattr", "vars", "dir", "help", "callable", "issubclass", "round", "iter", "next",
))  # fmt: skip
_SHELL = re.compile(r"^\s*(?:[\w, ]+=\s*)?!+\s*(nvidia-smi|nvcc|rocm-smi|nvtop|gpustat)\b")
_BODY_MAGICS = frozenset(("time", "timeit", "capture", "prun"))


@dataclass(frozen=True)
class Decision:
    """Where a cell runs, and why, as the end of a sentence."""

    away: bool
    why: str


def decide(source: str, lookup: Lookup) -> Decision:
    """Return where a cell runs, and why."""
    lines = source.splitlines()
    for line in lines:
        if match := _SHELL.match(line):
            return Decision(True, f"{match[1]} is about the GPU")
    head = next((line.strip() for line in lines if line.strip()), "")
    if head.startswith("%%"):
        words = head[2:].split()
        if not words or words[0] not in _BODY_MAGICS:
            return Decision(False, f"%%{words[0] if words else ''} uses no GPU library")
        lines = lines[next(i for i, line in enumerate(lines) if line.strip()) + 1 :]
    try:
        tree = ast.parse("\n".join(map(_python, lines)))
    except SyntaxError:
        return Decision(False, "it cannot be read")
    reader = _Reader(lookup)
    for statement in tree.body:
        reader.statement(statement)
        if reader.why:
            return Decision(True, reader.why)
    return Decision(False, "it uses no GPU library")


def _python(line: str) -> str:
    """Return a line as Python: what IPython alone knows becomes nothing, a timed line its code."""
    stripped = line.lstrip()
    indent = line[: len(line) - len(stripped)]
    if match := re.match(r"%(?:time|timeit)\s+(?!-)(.*)", stripped):
        return indent + match[1]
    if stripped.startswith(("%", "!", "?")) or stripped.rstrip().endswith("?"):
        return f"{indent}pass"
    return line


class _Reader(ast.NodeVisitor):
    """Reads statements in their order; ``why`` is set by the first that uses a GPU library."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._own: dict[str, tuple[Kind, str]] = {}  # names that the cell itself has bound
        self._careful = 0
        self.why = ""

    def statement(self, node: ast.stmt) -> None:
        """Read one statement."""
        self.visit(node)

    def _kind(self, name: str) -> tuple[Kind, str]:
        return self._own[name] if name in self._own else self._lookup(name)

    def _found(self, node: ast.AST, library: str) -> None:
        if not self.why:
            text = ast.unparse(node).splitlines()[0]
            short = text if len(text) <= 40 else text[:37] + "..."
            self.why = f"{short} uses {library}"

    # ---- what binds names

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._own[name] = _imported(alias.name)
            self._missing(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            found = _imported(node.module or "")
            if found[0] is Kind.PLAIN:
                found = _imported(f"{node.module}.{alias.name}")
            self._own[alias.asname or alias.name] = found
        if not node.level:
            self._missing(node.module or "")

    def _missing(self, module: str) -> None:
        """A library that is not installed here is imported on the GPU, where it may be."""
        top = module.partition(".")[0]
        if framework(module) and not self._careful and not is_installed(top):
            self.why = self.why or f"{top} is not installed in your notebook"

    def visit_Try(self, node: ast.Try) -> None:
        """Whoever tries an import goes on without it."""
        self._careful += 1
        for each in node.body:
            self.visit(each)
        self._careful -= 1
        for other in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(other)

    def visit_FunctionDef(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> None:
        """A body does not run; what it is to whoever calls it is what it names."""
        inner = _Reader(self._kind)
        inner._own = {a.arg: (Kind.PLAIN, "") for a in _arguments(node)}
        library = ""
        for part in (*node.body, *getattr(node, "bases", ()), *node.decorator_list):
            library = library or inner.library(part)
        self._own[node.name] = (Kind.LIBRARY, library) if library else (Kind.HELPER, "")

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # noqa: N815 - ast calls them so

    def visit_Lambda(self, node: ast.Lambda) -> None:
        pass

    def library(self, node: ast.AST) -> str:
        """Return a library that a piece of code names, "" for none."""
        names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        kinds = (self._kind(name) for name in names)
        return next((lib for kind, lib in kinds if kind in (Kind.LIBRARY, Kind.VALUE)), "")

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._bind(target, self._value(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._bind(node.target, self._value(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        kind, library = self._value(node.target)
        if kind is Kind.VALUE and not _is_plain_container(node.value):
            self._found(node, library)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._bind(node.target, self._value(node.iter))
        for inner in (*node.body, *node.orelse):
            self.visit(inner)

    visit_AsyncFor = visit_For  # noqa: N815 - ast calls them so

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        self._bind(node.target, self._value(node.iter))
        for test in node.ifs:
            self.visit(test)

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> None:
        for generator in node.generators:
            self.visit(generator)
        self.visit(node.elt)

    visit_SetComp = visit_GeneratorExp = visit_ListComp  # noqa: N815 - ast calls them so

    def visit_DictComp(self, node: ast.DictComp) -> None:
        for generator in node.generators:
            self.visit(generator)
        self.visit(node.key)
        self.visit(node.value)

    def _bind(self, target: ast.expr, found: tuple[Kind, str]) -> None:
        if isinstance(target, ast.Name):
            self._own[target.id] = found
        elif isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._bind(each, found)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, found)
        elif isinstance(target, ast.Subscript):
            kind, library = self._value(target.value)
            if kind is Kind.VALUE and not isinstance(target.slice, ast.Constant):
                self._found(target, library)

    # ---- what uses one

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and self._kind(node.id)[0] is Kind.AWAY:
            self.why = self.why or f"{node.id} is on the GPU only"

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        self._operands(node, (node.left, node.right))

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        if not all(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops):
            self._operands(node, (node.left, *node.comparators))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            self._operands(node, (node.operand,))

    def _operands(self, node: ast.expr, operands: tuple[ast.expr, ...]) -> None:
        for operand in operands:
            kind, library = self._value(operand)
            if kind is Kind.VALUE:
                self._found(node, library)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Attribute):
            kind, library = self._value(function.value)
            if kind in (Kind.LIBRARY, Kind.VALUE):
                if function.attr not in _READOUTS | _SETTINGS:
                    self._found(node, library)
                return
        else:
            kind, library = self._value(function)
            if kind in (Kind.LIBRARY, Kind.VALUE):
                name = function.id if isinstance(function, ast.Name) else ""
                if name not in _SETTINGS:
                    self._found(node, library)
                return
            if isinstance(function, ast.Name) and function.id in _LOOKS:
                return
        if kind is Kind.HELPER:  # the notebook's own: what it does with a tensor, nobody knows
            for argument in (*node.args, *(k.value for k in node.keywords)):
                given, library = self._value(argument)
                if given is Kind.VALUE:
                    self._found(node, library)

    def _value(self, node: ast.expr) -> tuple[Kind, str]:  # noqa: PLR0911 - one a kind of node
        """Return what an expression gives."""
        plain = Kind.PLAIN, ""
        if isinstance(node, ast.Name):
            return self._kind(node.id)
        if isinstance(node, ast.Attribute | ast.Starred):
            return self._value(node.value)
        if isinstance(node, ast.Subscript):
            return self._value(node.value)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                kind, library = self._value(node.func.value)
                scalar = node.func.attr in ("item", "tolist", "numpy", "numel", "size", "dim")
                return plain if scalar or kind is Kind.PLAIN else (Kind.VALUE, library)
            if isinstance(node.func, ast.Name) and node.func.id in ("zip", "enumerate", "list"):
                return self._any(node.args)
            kind, library = self._value(node.func)
            return (Kind.VALUE, library) if library else plain
        if isinstance(node, ast.BinOp):
            return self._any([node.left, node.right])
        if isinstance(node, ast.Tuple | ast.List):
            return self._any(node.elts)
        if isinstance(node, ast.IfExp):
            return self._any([node.body, node.orelse])
        return plain

    def _any(self, nodes: list[ast.expr]) -> tuple[Kind, str]:
        found = (self._value(node) for node in nodes)
        return next((f for f in found if f[0] is Kind.VALUE), (Kind.PLAIN, ""))


def _imported(module: str) -> tuple[Kind, str]:
    library = framework(module)
    return (Kind.LIBRARY, library) if library else (Kind.PLAIN, "")


def _is_plain_container(node: ast.expr) -> bool:
    return isinstance(node, ast.List | ast.Dict | ast.Set)


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.arg]:
    if isinstance(node, ast.ClassDef):
        return []
    every = node.args
    extra = [a for a in (every.vararg, every.kwarg) if a is not None]
    return [*every.posonlyargs, *every.args, *every.kwonlyargs, *extra]
