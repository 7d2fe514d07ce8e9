"""When each GPU of a replay was leased and in use: the time line of one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

#: From when to when, seconds.
Span = tuple[float, float]
#: Spans that are less than such a part of the time apart are drawn as one.
_FINEST = 1 / 2000


@dataclass(frozen=True)
class Timeline:
    """When one GPU was leased and in use: spans in seconds from the beginning; "" is no GPU."""

    uuid: str = ""
    held: tuple[Span, ...] = ()
    busy: tuple[Span, ...] = ()


class Spans:
    """Collects the spans of every GPU while a replay of ``length`` seconds runs."""

    def __init__(self, length: float) -> None:
        self._gap = length * _FINEST
        self._held: dict[str, list[Span]] = defaultdict(list)
        self._busy: dict[str, list[Span]] = defaultdict(list)

    def held(self, devices: Iterable[str], begin: float, end: float) -> None:
        """Note that a lease held these devices."""
        for uuid in devices:
            self._held[uuid].append((begin, end))

    def busy(self, devices: Iterable[str], begin: float, end: float) -> None:
        """Note that a cell used these devices."""
        for uuid in devices:
            self._busy[uuid].append((begin, end))

    def timeline(self, uuid: str) -> Timeline:
        """Return the time line of a device; "" is the one that was held longest."""
        held = {each: self._joined(spans) for each, spans in self._held.items()}
        longest = max(sorted(held), key=lambda each: _length(held[each]), default="")
        uuid = uuid or longest
        return Timeline(uuid, held.get(uuid, ()), self._joined(self._busy.get(uuid, ())))

    def _joined(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        """Return spans in their order, those that touch or nearly do as one."""
        found: list[Span] = []
        for begin, end in sorted(spans):
            if found and begin - found[-1][1] <= self._gap:
                found[-1] = (found[-1][0], max(found[-1][1], end))
            else:
                found.append((begin, end))
        return tuple((round(begin), round(end)) for begin, end in found)


def _length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)
