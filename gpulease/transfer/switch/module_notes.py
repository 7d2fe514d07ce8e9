"""Says once, to a cell that may read it, what the other side changed in a module.

Owns which cells may read it, by the packages that they lead to, and the sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from gpulease.transfer.api import Note, Place
from gpulease.transfer.values.names.analysis import Use, cell_use, code_use
from gpulease.transfer.values.names.module_use import module_use
from gpulease.transfer.values.state.module_changes import ModuleChanges

from .messages import module_note

#: Every cell reads these without a name.
_ALWAYS = frozenset({"builtins"})


class ModuleNotes:
    """Home's: ``changes`` are its own and what the companion told of its."""

    def __init__(self, namespace: Mapping[str, Any], changes: ModuleChanges) -> None:
        self._ns = namespace
        self._changes = changes
        self._said: set[tuple[Place, str]] = set()

    def new_companion(self) -> None:
        """What was said of the one before it is to be said of this one, too."""
        self._said = {each for each in self._said if each[0] is not Place.GPU}

    def to(self, source: str, place: Place) -> list[Note]:
        """Return what is to be said to a cell of ``place``."""
        there, here = self._changes.mine, self._changes.theirs
        if place is Place.HOME:
            there, here = here, there
        other = [
            name
            for name, mark in there.items()
            if here.get(name) != mark and (place, name) not in self._said
        ]
        if not other:
            return []
        packages = self._packages(source)
        names = sorted(n for n in other if packages is None or n.partition(".")[0] in packages)
        self._said.update((place, name) for name in names)
        return [module_note(names, place)] if names else []

    def _packages(self, source: str) -> set[str] | None:
        """Return the packages that a cell may read of, None where it may read everything."""
        use = cell_use(source)
        if use.unbounded:
            return None
        imported = {name.partition(".")[0] for name in module_use(source).imported}
        return imported | _ALWAYS | set(self._of_values(use))

    def _of_values(self, use: Use) -> Iterator[str]:
        seen: set[str] = set()
        queue = list(use.touched)
        while queue:
            name = queue.pop()
            if name in seen or name not in self._ns:
                continue
            seen.add(name)
            value = self._ns[name]
            if type(value) is FunctionType:
                queue += code_use(value.__code__).reads
            for module in _modules_of(value):
                yield str(module).partition(".")[0]


def _modules_of(value: Any) -> Iterator[Any]:
    if issubclass(type(value), ModuleType):  # a proxy of what is gone cannot be asked
        yield value.__name__
    elif issubclass(type(value), type | FunctionType):
        yield value.__module__
    for kind in type(value).__mro__:
        yield kind.__module__
