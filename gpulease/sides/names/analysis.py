"""Which names a cell or a function may read or write, from its source or byte code.

This is the static half of "large is by need".  Where what runs cannot be bounded (``eval``,
``globals()``, a magic), the answer says so, and the caller then takes everything.
"""

from __future__ import annotations

import ast
import dis
import re
import types
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpulease.sides.names import scopes
from gpulease.sides.names.source import parsed

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
#: Asked of a class it leads to others that no name in the code leads to; it is among the reads.
SUBCLASSES = "__subclasses__"
#: What code that asks for one of these reaches no name says; they are among the reads, too.
ANYWHERE = frozenset({SUBCLASSES, "get_objects", "get_referrers"})
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
        handled: names whose value it does more with than compute a new one for the same name.
        imports: names that it binds by importing and in no other way.
        unbounded: True when any name may be touched.
        deletes: the names that it deletes where it does nothing else.
        sets: of byte code: the attributes, of whatever, that it sets or deletes.
    """

    strict: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    unbounded: bool = False
    handled: frozenset[str] = frozenset()
    deletes: frozenset[str] = frozenset()
    sets: frozenset[str] = frozenset()

    @property
    def touched(self) -> frozenset[str]:
        """Every name of it."""
        return self.reads | self.writes


EVERYTHING = Use(unbounded=True)


def cell_use(source: str) -> Use:
    """Analyse a cell as typed (IPython syntax included); unparsable source is unbounded."""
    tree = parsed(source)
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
        frozenset(visitor.handled),
        _deleted(tree),
    )


def _deleted(tree: ast.Module) -> frozenset[str]:
    targets = [each for node in tree.body if isinstance(node, ast.Delete) for each in node.targets]
    names = frozenset(each.id for each in targets if isinstance(each, ast.Name))
    only = all(isinstance(node, ast.Delete) for node in tree.body) and len(names) == len(targets)
    return names if only else frozenset()


def imported_parts(source: str) -> set[str]:
    """Return the modules that a cell imports from inside a package and binds no name to.

    ``import a.b`` binds ``a``, and everybody who has ``a`` sees ``b`` in it.
    """
    tree = parsed(source) if "import" in source else None
    return {
        alias.name
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Import)
        for alias in node.names
        if "." in alias.name and alias.asname is None
    }


def _strict(tree: ast.Module) -> frozenset[str]:
    """Return names read before a plain statement of the cell has bound them."""
    needed: set[str] = set()
    _flow(tree.body, set(), needed)
    return frozenset(needed)


def _flow(  # noqa: C901 - one kind of statement a branch
    body: Sequence[ast.stmt], bound: set[str], needed: set[str]
) -> None:
    """Follow statements in order: add what they read unbound to ``needed``, what they surely
    bind to ``bound``.
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
        if isinstance(statement, ast.If | ast.While):
            needed |= _reads(statement.test) - bound
            for block in (statement.body, statement.orelse):
                _flow(block, set(bound), needed)
            continue
        if isinstance(statement, ast.Try | ast.TryStar):
            _flow_try(statement, bound, needed)
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


def _flow_try(statement: ast.Try | ast.TryStar, bound: set[str], needed: set[str]) -> None:
    """Any statement of the body may be the last: what it binds is not bound afterwards."""
    tried = set(bound)
    _flow(statement.body, tried, needed)
    _flow(statement.orelse, tried, needed)
    for handler in statement.handlers:
        needed |= (_reads(handler.type) if handler.type is not None else set()) - bound
        _flow(handler.body, bound | ({handler.name} if handler.name else set()), needed)
    _flow(statement.finalbody, bound, needed)


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


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


@dataclass
class _Visitor(ast.NodeVisitor):
    """Collects global names; what a function, lambda or comprehension has for itself is none."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    handled: set[str] = field(default_factory=set)
    renewed: frozenset[str] = frozenset()
    words: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    unbounded: bool = False
    #: The own names of the scopes around, from outside in; None for a class body, whose names may
    #: be the module's where it has not bound them yet.
    scopes: list[frozenset[str] | None] = field(default_factory=list)

    def _is_own(self, name: str) -> bool:
        return any(names is not None and name in names for names in self.scopes)

    def _bind(self, name: str) -> None:
        if self._is_global(name):
            self.writes.add(name)

    def _is_global(self, bound: str) -> bool:
        """Say whether binding a name here binds the notebook's."""
        return not self._is_own(bound) and (not self.scopes or self.scopes[-1] is not None)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id)
            return
        if self._is_own(node.id):
            return
        self.reads.add(node.id)
        if isinstance(node.ctx, ast.Load) and node.id not in self.renewed:
            self.handled.add(node.id)
        if isinstance(node.ctx, ast.Del):
            self.writes.add(node.id)
        elif node.id in _UNBOUNDED:
            self.unbounded = True

    def _inside(self, names: frozenset[str] | None, *nodes: ast.AST) -> None:
        self.scopes.append(names)
        for node in nodes:
            self.visit(node)
        self.scopes.pop()

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        own = scopes.function_names(node)
        for outside in scopes.evaluated_outside(node):
            self.visit(outside)
        body = node.body if isinstance(node.body, list) else [node.body]
        self._inside(own, *body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name)
        self._function(node)

    visit_FunctionDef = _definition  # noqa: N815
    visit_AsyncFunctionDef = _definition  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name)
        for outside in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(outside)
        self._inside(None, *node.body)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> None:
        first, *rest = node.generators
        self.visit(first.iter)  # in the scope around
        for name in scopes.walrus_names(node):
            self._bind(name)
        ends = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._inside(scopes.comprehension_names(node), first.target, *first.ifs, *rest, *ends)

    visit_ListComp = _comprehension  # noqa: N815
    visit_SetComp = _comprehension  # noqa: N815
    visit_GeneratorExp = _comprehension  # noqa: N815
    visit_DictComp = _comprehension  # noqa: N815

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and not self._is_own(node.target.id):
            self.reads.add(node.target.id)
            self.handled.add(node.target.id)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """What is called may change its arguments; an operator makes something new."""
        if not any(isinstance(part, ast.Call) for part in ast.walk(node.value)):
            self.renewed = frozenset(_targets(node.targets))
        self.generic_visit(node)
        self.renewed = frozenset()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in _DOORS:
            self.unbounded = True
        self.reads |= {node.attr} & ANYWHERE
        self._change(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._change(node)

    def _change(self, node: ast.Attribute | ast.Subscript) -> None:
        name = _root(node)
        stored = isinstance(node.ctx, ast.Store | ast.Del)
        if name is not None and stored and not self._is_own(name):
            self.changes.add(name)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            name = _root(call.func)
            if name is not None and not self._is_own(name):
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
            self._bind(name)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.reads.update(node.names)
        self.writes.update(node.names)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                self.unbounded = True  # it may bind any name
            else:
                name = (alias.asname or alias.name).split(".")[0]
                if self._is_global(name):
                    self.imports.add(name)
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
_SET_OPS = frozenset({"STORE_ATTR", "DELETE_ATTR"})


def code_use(code: types.CodeType) -> Use:
    """Return the global names that a function's byte code may touch, nested code included."""
    known = _code_uses.get(code)
    if known is not None:
        return known
    reads: set[str] = set()
    writes: set[str] = set()
    sets: set[str] = set()
    unbounded = False
    for instruction in dis.get_instructions(code):
        if instruction.opname in _READ_OPS:
            reads.add(instruction.argval)
        elif instruction.opname in _WRITE_OPS:
            writes.add(instruction.argval)
        elif instruction.opname in _SET_OPS:
            sets.add(instruction.argval)
        elif instruction.opname in _NAMED_OPS:
            unbounded = unbounded or instruction.argval in _DOORS
            reads |= {instruction.argval} & ANYWHERE
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = code_use(constant)
            reads |= inner.reads
            writes |= inner.writes
            sets |= inner.sets
            unbounded = unbounded or inner.unbounded
        elif isinstance(constant, str):
            words = _WORD.findall(constant)
            unbounded = unbounded or not _DOORS.isdisjoint(words)
            reads.update(words if len(constant) < 200 else ())
    unbounded = unbounded or bool(reads & _UNBOUNDED)
    use = Use(
        reads=frozenset(reads | writes), writes=frozenset(writes), changes=frozenset(writes),
        unbounded=unbounded, sets=frozenset(sets),
    )  # fmt: skip
    _code_uses[code] = use
    return use
