"""Values that stay on the GPU, for their size or their kind, and what becomes of them.

What home's memory does not hold is *parkable*, so that the next companion has it, or *GPU-only*:
lost when the lease ends.
Owns the decision and its words; what is parked is decided when it is, by what is there then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from gpulease.sizes import size_text
from gpulease.transfer.values.packing.ledger import Absent
from gpulease.transfer_next.api import Note
from gpulease.transfer_next.refuse import LASTING


class Room(NamedTuple):
    """Bytes that a value may have to be accepted at home, and to be parked."""

    home: int
    parked: int


class Large:
    """Home's judge of sizes; ``room`` gives the bytes that one value may have here."""

    def __init__(self, room: Callable[[], int]) -> None:
        self._room = room
        self.park_limit = 0
        self._told: set[tuple[str, ...]] = set()
        self._told_lasting: set[str] = set()

    def marked(self, absent: Absent) -> Absent:
        """Return ``absent`` with the reason why it stays away, where that is its size."""
        if absent.blocker or not absent.size:
            return absent
        room = Room(self._room(), self.park_limit)
        if absent.size <= room.home:
            return absent
        return replace(absent, blocker=_sentence(absent.size, room))

    def notes(self, remote: Mapping[str, Absent]) -> list[Note]:
        """Return what is to be said of values that stay there since the last call."""
        return [*self._too_large(remote), *self._lasting(remote)]

    def _lasting(self, remote: Mapping[str, Absent]) -> list[Note]:
        kinds = {name: a.blocker for name, a in sorted(remote.items()) if a.blocker in LASTING}
        told, self._told_lasting = self._told_lasting, set(kinds)
        return [
            Note("stays", f"{name} stays on the GPU: it is {kind}.", (name,))
            for name, kind in kinds.items()
            if name not in told
        ]

    def _too_large(self, remote: Mapping[str, Absent]) -> list[Note]:
        found: dict[tuple[int, str], list[str]] = {}
        for name, absent in sorted(remote.items()):
            marked = self.marked(absent)
            if marked is not absent and marked.size:
                found.setdefault((marked.size, marked.blocker), []).append(name)
        told, self._told = self._told, {tuple(names) for names in found.values()}
        return [
            Note("too_large", f"{', '.join(names)} ({size_text(size)}): {why}", tuple(names))
            for (size, why), names in found.items()
            if tuple(names) not in told
        ]


def _sentence(size: int, room: Room) -> str:
    first = f"Too large for your notebook's memory ({size_text(max(0, room.home))} fit)"
    if size <= room.parked:
        return f"{first}: it stays on the GPU and is parked when the lease ends."
    return (
        f"{first} and for what may be parked ({size_text(room.parked)}): it is on the GPU "
        "only, and lost when the lease ends. Save it to a file in a GPU cell."
    )
