"""What goes first of each of many sides, and of all of them, while what they hold changes."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import Any, Generic, TypeVar

S = TypeVar("S")
L = TypeVar("L")


class Firsts(Generic[S, L]):
    """The lease of each project that goes first, by their places; brought up to date in part.

    Attributes:
        seen: how many changes it has seen.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._now: dict[S, tuple[tuple[object, ...], L]] = {}
        self._heap: list[tuple[tuple[Any, ...], int, S]] = []
        self._number = count()

    def put(self, project: S, first: tuple[tuple[object, ...], L] | None) -> None:
        """Say what goes first of a project, ``None`` for nothing."""
        if first is None:
            self._now.pop(project, None)
        else:
            self._now[project] = first
            heappush(self._heap, (first[0], next(self._number), project))

    def least(self, own: S) -> tuple[tuple[object, ...], L] | None:
        """Return the first of all but one's own project."""
        aside, found = [], None
        while self._heap and found is None:
            place, _, project = self._heap[0]
            now = self._now.get(project)
            if now is None or now[0] != place:
                heappop(self._heap)  # it was brought up to date since
            elif project is own:
                aside.append(heappop(self._heap))
            else:
                found = now
        for each in aside:
            heappush(self._heap, each)
        return found
