"""Magics that a notebook defines: which there are, and how the other side gets one.

A magic is a function of the notebook's, which travels as a variable; only that it is a magic has to
be told.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType
from typing import Any

#: ``line`` or ``cell``, the magic's name, and the variable that its function is bound to.
Magic = tuple[str, str, str]


def magics_of(shell: Any) -> dict[Magic, FunctionType]:
    """Return the notebook's own magics that have a variable, with their functions."""
    found = [
        (kind, name, function)
        for kind, magics in shell.magics_manager.magics.items()
        for name, function in magics.items()
        if is_own(shell, function)
    ]
    if not found:
        return {}
    variables = {id(value): name for name, value in list(shell.user_ns.items())}
    return {(k, n, variables[id(f)]): f for k, n, f in found if id(f) in variables}


def is_own(shell: Any, function: Any) -> bool:
    """Say whether a magic's function is one that a cell defined."""
    return isinstance(function, FunctionType) and function.__globals__ is shell.user_ns


def enter(shell: Any, magics: Iterable[Magic]) -> list[Magic]:
    """Make magics of those functions that are here; return the others."""
    left = []
    for kind, name, variable in magics:
        function = shell.user_ns.get(variable)
        if is_own(shell, function):
            shell.register_magic_function(function, kind, name)
        else:
            left.append((kind, name, variable))
    return left
