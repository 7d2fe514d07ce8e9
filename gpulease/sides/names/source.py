"""A cell's text as Python reads it, IPython syntax included."""

from __future__ import annotations

import ast
from typing import Any


def nodes_of(source: str) -> list[ast.AST] | None:
    """Return the nodes of a cell that is Python alone, None for another one: with a magic, say."""
    try:
        return list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def parsed(source: str) -> ast.Module | None:
    """Return the tree of a cell as typed, None where it is no Python even after IPython's work."""
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
