"""Which object an attribute of a module is: the first one, or a later one that took its place."""

from __future__ import annotations

from typing import Any

from gpulease.sides import module_files

#: How often its module was loaded when a name was bound to what it is, and how often anew since.
Times = tuple[int, int]


def full_name(module: str, name: str) -> str:
    """Return how an attribute of a module, or of what it holds, is named on both sides."""
    return f"{module}/{name}"


class Bindings:
    """Counts, by name, how often an attribute was bound anew; both sides count alike."""

    def __init__(self) -> None:
        self._now: dict[str, tuple[Times, int]] = {}

    def count(self, name: str, value: Any) -> Times:
        """Return how often ``name`` (a ``full_name``) was bound anew, now that it is ``value``."""
        times, known = self._now.get(name, ((0, 0), 0))
        if known != id(value):
            loads = module_files.times_loaded(name.partition("/")[0])
            times = (loads, times[1] + 1 if loads == times[0] else 0)
        self._now[name] = times, id(value)
        return times

    def take(self, name: str, times: Times, value: Any) -> None:
        """Say that ``name`` is ``value`` here, which the other side bound so often."""
        self._now[name] = times, id(value)
