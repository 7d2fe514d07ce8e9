"""Which names are a function's, a lambda's or a comprehension's own, as the compiler has it.

A syntax tree is read, because the standard library's ``symtable`` needs a text that compiles, and a
cell with IPython's syntax does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


def function_names(node: _Function) -> frozenset[str]:
    """Return parameters and what the body binds, without what it declares global or nonlocal."""
    arguments = node.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    own = {argument.arg for argument in every}
    own |= {argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument}
    body = node.body if isinstance(node.body, list) else [node.body]
    declared: set[str] = set()
    for inner in _of_scope(body):
        if isinstance(inner, ast.Global | ast.Nonlocal):
            declared.update(inner.names)
        own |= _bound_by(inner)
    return frozenset(own - declared)


def evaluated_outside(node: _Function) -> Iterator[ast.AST]:
    """Yield what is evaluated where a function is defined: decorators, defaults, annotations."""
    yield from getattr(node, "decorator_list", ())
    arguments = node.args
    yield from arguments.defaults
    yield from (default for default in arguments.kw_defaults if default is not None)
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg) and argument.annotation is not None:
            yield argument.annotation
    returns = getattr(node, "returns", None)
    if returns is not None:
        yield returns


def comprehension_names(node: _Comprehension) -> frozenset[str]:
    """Return the targets of a comprehension."""
    return frozenset(
        name.id
        for generator in node.generators
        for name in ast.walk(generator.target)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    )


def walrus_names(node: _Comprehension) -> Iterator[str]:
    """Yield what a comprehension binds in the scope around it."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.NamedExpr):
            yield inner.target.id


def _of_scope(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield every node of a scope, inner functions and classes themselves but not their bodies."""
    queue = list(body)
    while queue:
        node = queue.pop()
        yield node
        if isinstance(node, _FUNCTIONS):
            queue += evaluated_outside(node)
        elif isinstance(node, ast.ClassDef):
            queue += [*node.decorator_list, *node.bases]
        elif isinstance(node, _COMPREHENSIONS):
            queue += [inner for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)]
            queue.append(node.generators[0].iter)
        else:
            queue += ast.iter_child_nodes(node)


def _bound_by(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return {node.id}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return {node.name} if node.name else set()
    if isinstance(node, ast.MatchMapping):
        return {node.rest} if node.rest else set()
    return set()
