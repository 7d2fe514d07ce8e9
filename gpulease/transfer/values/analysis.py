"""Which names a cell or a function may read or write, from its source or byte code.

Owns the static half of "large is by need".  It never looks at values and decides nothing about
small ones; where it cannot bound what runs (``eval``, ``globals()``, a magic), it says so, and the
caller then takes everything.
"""

from __future__ import annotations

import ast
import dis
import re
import types
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Calling one of these may read or write any name.
_UNBOUNDED = frozenset({
    "eval", "exec", "globals", "locals", "vars", "dir", "compile", "get_ipython", "__import__",
    "execfile", "run_line_magic", "run_cell_magic", "__main__", "__builtins__",
})  # fmt: skip
#: Attributes and words that lead to the namespace itself.
_DOORS = frozenset({
    "__main__", "__globals__", "f_globals", "f_locals", "user_ns", "user_global_ns", "run_cell",
    "run_line_magic", "run_cell_magic", "_getframe", "get_ipython",
})  # fmt: skip
_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Use:
    """What a piece of code may touch.

    Attributes:
        strict: names it reads or deletes by name before it binds them itself.
        reads: names it may read or delete, and words inside its string constants.
        writes: names it may bind.
        changes: names whose value it plainly changes: bound, subscripted, given an attribute,
            or called a method of as a statement.
        imports: names that it binds by importing and in no other way.
        unbounded: True when any name may be touched.
    """

    strict: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    unbounded: bool = False

    @property
    def touched(self) -> frozenset[str]:
        """Every name of it."""
        return self.reads | self.writes


EVERYTHING = Use(unbounded=True)


def cell_use(source: str) -> Use:
    """Analyse a cell as typed (IPython syntax included); unparsable source is unbounded."""
    tree = _parse(source)
    if tree is None:
        return EVERYTHING
    visitor = _Visitor()
    visitor.visit(tree)
    return Use(
        _strict(tree),
        frozenset(visitor.reads | visitor.words),
        frozenset(visitor.writes | visitor.imports),
        frozenset(visitor.changes | visitor.writes | visitor.imports),
        frozenset(visitor.imports - visitor.writes),
        visitor.unbounded or bool(visitor.words & _DOORS),
    )


def _strict(tree: ast.Module) -> frozenset[str]:
    """Return names read before a plain statement of the cell has bound them."""
    needed: set[str] = set()
    _flow(tree.body, set(), needed)
    return frozenset(needed)


def _flow(body: Sequence[ast.stmt], bound: set[str], needed: set[str]) -> None:
    """Follow statements in order: add what they read unbound to ``needed``, what they surely
    bind to ``bound``.  Only blocks entered with a target of their own are followed inside.
    """
    for statement in body:
        if isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                needed |= _reads(item) - bound
                bound |= _targets([item.optional_vars])
            _flow(statement.body, bound, needed)
            continue
        if isinstance(statement, ast.For | ast.AsyncFor):
            needed |= _reads(statement.iter, statement.target) - bound
            inner = bound | _targets([statement.target])
            _flow(statement.body, inner, needed)
            _flow(statement.orelse, set(bound), needed)
            continue
        needed |= _reads(statement) - bound
        if isinstance(statement, ast.Import | ast.ImportFrom):
            bound |= {(a.asname or a.name).split(".")[0] for a in statement.names}
        elif isinstance(statement, ast.Assign):
            bound |= _targets(statement.targets)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            bound |= _targets([statement.target])
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(statement.name)


def _reads(*nodes: ast.AST) -> set[str]:
    visitor = _Visitor()
    for node in nodes:
        visitor.visit(node)
    return visitor.reads


def _targets(targets: Iterable[ast.expr | None]) -> set[str]:
    """Return the names that an assignment to these surely binds."""
    found: set[str] = set()
    for target in targets:
        if isinstance(target, ast.Name):
            found.add(target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            found |= _targets(target.elts)
        elif isinstance(target, ast.Starred):
            found |= _targets([target.value])
    return found


def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        pass
    try:
        from IPython.core.inputtransformer2 import TransformerManager

        manager: Any = TransformerManager
        plain: str = manager().transform_cell(source)
        return ast.parse(plain)
    except (ImportError, SyntaxError, ValueError):
        return None


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


@dataclass
class _Visitor(ast.NodeVisitor):
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    unbounded: bool = False

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.writes.add(node.id)
            return
        self.reads.add(node.id)
        if isinstance(node.ctx, ast.Del):
            self.writes.add(node.id)
        elif node.id in _UNBOUNDED:
            self.unbounded = True

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.reads.add(node.target.id)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in _DOORS:
            self.unbounded = True
        self._change(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._change(node)

    def _change(self, node: ast.Attribute | ast.Subscript) -> None:
        name = _root(node)
        if name is not None and isinstance(node.ctx, ast.Store | ast.Del):
            self.changes.add(name)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            name = _root(call.func)
            if name is not None:
                self.changes.add(name)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.words.update(_WORD.findall(node.value))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._binds(node, node.name)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._binds(node, node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._binds(node, node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._binds(node, node.rest)

    def _binds(self, node: ast.AST, name: str | None) -> None:
        if name is not None:
            self.writes.add(name)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.reads.update(node.names)
        self.writes.update(node.names)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.writes.add(node.name)
        self.generic_visit(node)

    visit_FunctionDef = _definition  # noqa: N815
    visit_AsyncFunctionDef = _definition  # noqa: N815
    visit_ClassDef = _definition  # noqa: N815

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                self.unbounded = True  # it may bind any name
            else:
                self.imports.add((alias.asname or alias.name).split(".")[0])
            if _DOORS & {alias.name, node.module if isinstance(node, ast.ImportFrom) else ""}:
                self.unbounded = True
        if isinstance(node, ast.ImportFrom) and node.module == "__main__":
            self.reads.update(alias.name for alias in node.names)

    visit_Import = _imported  # noqa: N815
    visit_ImportFrom = _imported  # noqa: N815


_code_uses: weakref.WeakKeyDictionary[types.CodeType, Use] = weakref.WeakKeyDictionary()
_READ_OPS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_NAMED_OPS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "IMPORT_NAME", "IMPORT_FROM"})
_WRITE_OPS = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})


def code_use(code: types.CodeType) -> Use:
    """Return the global names that a function's byte code may touch, nested code included."""
    known = _code_uses.get(code)
    if known is not None:
        return known
    reads: set[str] = set()
    writes: set[str] = set()
    unbounded = False
    for instruction in dis.get_instructions(code):
        if instruction.opname in _READ_OPS:
            reads.add(instruction.argval)
        elif instruction.opname in _WRITE_OPS:
            writes.add(instruction.argval)
        elif instruction.opname in _NAMED_OPS and instruction.argval in _DOORS:
            unbounded = True
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = code_use(constant)
            reads |= inner.reads
            writes |= inner.writes
            unbounded = unbounded or inner.unbounded
        elif isinstance(constant, str):
            words = _WORD.findall(constant)
            unbounded = unbounded or not _DOORS.isdisjoint(words)
            reads.update(words if len(constant) < 200 else ())
    unbounded = unbounded or bool(reads & _UNBOUNDED)
    use = Use(
        reads=frozenset(reads | writes), writes=frozenset(writes), changes=frozenset(writes),
        unbounded=unbounded,
    )  # fmt: skip
    _code_uses[code] = use
    return use
