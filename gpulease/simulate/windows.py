"""The reserved windows of a trace, and which of them matter at an instant."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from gpulease.policy.calendar.reservation import Window, windows_of
from gpulease.policy.model import PolicyDocument
from gpulease.simulate.trace import Trace

#: A window that opens within this time is near.
_NEAR = timedelta(hours=1)
#: The planner sees windows whose hold begins within this time, as in the service.
_AHEAD = timedelta(days=1)


class Windows:
    """The windows of all reservations whose class is on offer.

    Args:
        trace: names the reservations.
        policy: says which classes there are.
    """

    def __init__(self, trace: Trace, policy: PolicyDocument) -> None:
        pools = {each.name: each.pool for each in policy.classes}
        self._all: list[Window] = [
            window
            for each in trace.reservations
            if each.gpu_class in pools
            for window in windows_of(each, policy.reservations, pools[each.gpu_class])
        ]

    def changes(self) -> Iterator[datetime]:
        """Yield the instants at which a window may change what is planned."""
        for window in self._all:
            yield from (window.hold_from - _NEAR, window.start, window.last_end)

    def is_near(self, now: datetime) -> bool:
        """Whether one is open, or opens soon."""
        return any(w.hold_from - _NEAR <= now <= w.last_end for w in self._all)

    def ahead(self, now: datetime) -> tuple[Window, ...]:
        """Return those that the planner sees."""
        return tuple([w for w in self._all if w.hold_from <= now + _AHEAD and w.last_end > now])
