"""Says once, to a cell that may read it, what the other side changed in a module.

Owns which cells may read it, by the packages that they lead to, and the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpulease.sides.names.analysis import cell_use
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import Note, Place
from gpulease.transfer_next.messages import module_note

from .own_parts import packages_of

#: Every cell reads these without a name.
_ALWAYS = frozenset({"builtins"})


Changes = Mapping[str, frozenset[str]]


class ModuleNotes:
    """Home's: of its own changes and those that the companion told of."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._ns, self._changes = side.ns, side.state.modules
        self._said: set[tuple[Place, str]] = set()

    def new_companion(self) -> None:
        """What was said of the one before it is to be said of this one, too."""
        self._said = {each for each in self._said if each[0] is not Place.GPU}

    def to(self, source: str, place: Place) -> list[Note]:
        """Return what is to be said to a cell of ``place``."""
        changes = self._changes
        if place is Place.HOME:
            return self._of(source, changes.past | changes.theirs, changes.mine, place)
        there = self._of(source, changes.mine, changes.theirs, place)
        # What the notebook has alike, a new companion is told of by that.
        past = {n: marks for n, marks in changes.past.items() if n not in changes.mine}
        return there + self._of(source, past, changes.theirs, place, earlier=True)

    def _of(
        self, source: str, there: Changes, here: Changes, place: Place, *, earlier: bool = False
    ) -> list[Note]:
        other = [
            name
            for name, marks in there.items()
            if here.get(name) != marks and (place, name) not in self._said
        ]
        if other:  # what a variable is, too, travels with that
            known = self._side.ledger.peer_units
            other = [name for name in other if not self._side.own.is_shared(name, known)]
        if not other:
            return []
        packages = self._packages(source)
        names = sorted(n for n in other if packages is None or n.partition(".")[0] in packages)
        self._said.update((place, name) for name in names)
        return [module_note(names, place, earlier=earlier)] if names else []

    def _packages(self, source: str) -> set[str] | None:
        """Return the packages that a cell may read of, None where it may read everything."""
        use = cell_use(source)
        return None if use.unbounded else packages_of(source, use, self._ns) | _ALWAYS
