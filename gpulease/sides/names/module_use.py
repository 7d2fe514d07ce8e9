"""Which modules a cell names, and which attributes, from its text alone."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpulease.sides.names.source import parsed

#: These name an attribute by their second argument.
_BY_WORD = frozenset({"setattr", "delattr"})


@dataclass(frozen=True)
class ModuleUse:
    """What a cell says of modules.

    Attributes:
        chains: dotted names that begin with a variable (``matplotlib.colormaps.register``).
        sets: every attribute that is set or deleted, of whatever.
        imported: modules that an ``import`` of the cell may import.
        bound: by name what an ``import`` binds it to (``np``: ``numpy``).
    """

    chains: frozenset[str] = frozenset()
    sets: frozenset[str] = frozenset()
    imported: frozenset[str] = frozenset()
    bound: Mapping[str, str] = field(default_factory=dict)


def module_use(source: str) -> ModuleUse:
    """Analyse a cell as typed; of what is no Python nothing is known."""
    tree = parsed(source)
    chains: set[str] = set()
    sets: set[str] = set()
    imported: set[str] = set()
    bound: dict[str, str] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                sets.add(node.attr)
            if chain := _dotted(node):
                chains.add(chain)
        elif isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
            for alias in node.names:
                top = alias.name.partition(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module)
            inside = {alias.asname or alias.name: alias.name for alias in node.names}
            bound |= {name: f"{node.module}.{part}" for name, part in inside.items()}
            imported.update(f"{node.module}.{part}" for part in inside.values())
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            sets.update(_by_word(node.func.id, node.args))
            chains.update(each.id for each in node.args[:1] if isinstance(each, ast.Name))
    return ModuleUse(frozenset(chains), frozenset(sets), frozenset(imported), bound)


def _by_word(called: str, arguments: list[ast.expr]) -> set[str]:
    word = arguments[1] if called in _BY_WORD and len(arguments) > 1 else None
    known = isinstance(word, ast.Constant) and isinstance(word.value, str)
    return {str(word.value)} if known and isinstance(word, ast.Constant) else set()


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
