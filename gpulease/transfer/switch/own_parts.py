"""Which variables are objects of the person's own modules, and which cells may change these.

A function of a module reads what the module holds by its own name for it, so no cell's text says
that it uses the variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any

from gpulease.sides.looks import ask
from gpulease.sides.names.analysis import Use, cell_use, code_use
from gpulease.sides.names.module_use import module_use
from gpulease.transfer.values.side import Side


class OwnParts:
    """Home's."""

    def __init__(self, side: Side) -> None:
        self._side = side
        #: Those that were one when they were here last.
        self._names: set[str] = set()

    def use_of(self, source: str) -> Use:
        """Return the use of a cell, with the variables that it reads by way of a module."""
        side, use = self._side, cell_use(source)
        packages = {name.partition(".")[0] for name in side.state.own.names()}
        if use.unbounded or not packages:
            return use
        here = set(side.names())
        away = (self._names & side.ledger.remote.keys()) - here
        self._names = away | {name for name in here if side.own.holds(side.ns[name])}
        if not self._names or packages.isdisjoint(packages_of(source, use, side.ns)):
            return use
        return replace(use, reads=use.reads | self._names)


def packages_of(source: str, use: Use, namespace: Mapping[str, Any]) -> set[str]:
    """Return the packages that a cell leads to, by its names and its functions'."""
    imported = {name.partition(".")[0] for name in module_use(source).imported}
    return imported | set(_of_values(use, namespace))


def _of_values(use: Use, namespace: Mapping[str, Any]) -> Iterator[str]:
    seen: set[str] = set()
    queue = list(use.touched)
    while queue:
        name = queue.pop()
        if name in seen or name not in namespace:
            continue
        seen.add(name)
        value = namespace[name]
        if type(value) is FunctionType:
            queue += code_use(value.__code__).reads
        for module in _modules_of(value):
            yield str(module).partition(".")[0]


def _modules_of(value: Any) -> Iterator[Any]:
    if issubclass(type(value), ModuleType):  # a proxy of what is gone cannot be asked
        yield ask(value, "__name__")
    elif issubclass(type(value), type | FunctionType):
        yield ask(value, "__module__")
    for kind in ask(type(value), "__mro__") or ():
        yield ask(kind, "__module__")
