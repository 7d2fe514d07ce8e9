"""Values that stay on the GPU for their size, and what becomes of them.

What home's memory does not hold is parked when the lease ends, so that the next companion has it,
or, where it is too large for that, too, lost by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpulease.sizes import size_text

from .api import Note
from .engine import Away
from .refuse import LASTING


class Large:
    """Home's judge of sizes; ``room`` gives the bytes that one value may have here."""

    def __init__(self, room: Callable[[], int]) -> None:
        self._room = room
        self.park_limit = 0
        self._told: set[tuple[str, ...]] = set()
        self._told_lasting: set[str] = set()

    def why(self, away: Away) -> str:
        """Return why a value is not here: its kind, or its size; "" for one that can come."""
        if not away.can_come:
            return away.reason
        room = self._room()
        if not away.size or away.size <= room:
            return ""
        first = f"Too large for your notebook's memory ({size_text(max(0, room))} fit)"
        if away.size <= self.park_limit:
            return f"{first}: it stays on the GPU and is parked when the lease ends."
        return (
            f"{first} and for what may be parked ({size_text(self.park_limit)}): it is on the GPU "
            "only, and lost when the lease ends. Save it to a file in a GPU cell."
        )

    def notes(self, away: Mapping[str, Away], stays: Mapping[str, Away]) -> list[Note]:
        """Return what is to be said of values that stay there since the last call."""
        return [*self._too_large(away), *self._lasting(stays)]

    def _lasting(self, stays: Mapping[str, Away]) -> list[Note]:
        kinds = {name: a.reason for name, a in sorted(stays.items()) if a.reason in LASTING}
        told, self._told_lasting = self._told_lasting, set(kinds)
        return [
            Note("stays", f"{name} stays on the GPU: it is {kind}.", (name,))
            for name, kind in kinds.items()
            if name not in told
        ]

    def _too_large(self, away: Mapping[str, Away]) -> list[Note]:
        found: dict[tuple[int, str], list[str]] = {}
        for name, each in sorted(away.items()):
            if each.can_come and each.size and (why := self.why(each)):
                found.setdefault((each.size, why), []).append(name)
        told, self._told = self._told, {tuple(names) for names in found.values()}
        return [
            Note("too_large", f"{', '.join(names)} ({size_text(size)}): {why}", tuple(names))
            for (size, why), names in found.items()
            if tuple(names) not in told
        ]
