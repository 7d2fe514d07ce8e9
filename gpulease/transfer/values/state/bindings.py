"""Which object an attribute of a module is: the first one, or a later one that took its place."""

from __future__ import annotations

from typing import Any


class Bindings:
    """Counts, by name, how often an attribute was bound anew; both sides count alike."""

    def __init__(self) -> None:
        self._now: dict[str, tuple[int, int]] = {}

    def count(self, name: str, value: Any) -> int:
        """Return how often ``name`` was bound anew, now that it is ``value``."""
        times, known = self._now.get(name, (0, id(value)))
        if known != id(value):
            times += 1
        self._now[name] = times, id(value)
        return times

    def take(self, name: str, times: int, value: Any) -> None:
        """Say that ``name`` is ``value`` here, which the other side bound so often."""
        self._now[name] = times, id(value)
