"""Lease pods that stand ready in a replay: how many there are, and which start finds one.

Owns their number.  What they hold counts as held and, as in the service, as free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from gpulease.policy import capacity
from gpulease.policy.calendar.occurrences import instant, wall_clock
from gpulease.policy.catalog import Warm
from gpulease.policy.model import Lease, PolicyDocument, Snapshot
from gpulease.simulate.clock import Clock


class Ready:
    """The pods of each class, by when each is ready, the oldest first.

    Args:
        start: seconds until such a pod is ready.
        stood: told how many there are whenever that changes.
    """

    def __init__(
        self, policy: PolicyDocument, clock: Clock, start: float, stood: Callable[[int], None]
    ) -> None:
        self._clock, self._start, self._stood = clock, start, stood
        self._wanted = {x.name: x.warm for x in policy.classes if x.warm is not None}
        self._pods: dict[str, list[float]] = {name: [] for name in self._wanted}

    def changes(self) -> Iterator[float]:
        """Return the seconds at which another number may be wanted: the beginning, and by hours."""
        if self._wanted:
            yield 0.0
        end = self._clock.when(self._clock.length)
        for each in self._wanted.values():
            yield from map(self._clock.seconds, _edges(each, self._clock.begin, end))

    def stand(self, snapshot: Snapshot) -> None:
        """Have as many as the policy wants now: the youngest go first."""
        standing = capacity.ready_pods(snapshot) if self._wanted else None
        if standing is None:
            return
        for name, pods in self._pods.items():
            wanted = standing.pods.get(name, 0)
            pods[wanted:] = [self._clock.t + self._start] * max(0, wanted - len(pods))
        self._tell()

    def claim(self, lease: Lease) -> bool:
        """Tell whether a start finds a pod that is ready, which is the lease's then.

        A pod that stands ready has one device.
        """
        pods = self._pods.get(lease.gpu_class, [])
        if lease.count != 1 or not pods or pods[0] > self._clock.t:
            return False
        pods.pop(0)
        self._tell()
        return True

    def _tell(self) -> None:
        self._stood(sum(map(len, self._pods.values())))


def _edges(each: Warm, begin: datetime, end: datetime) -> Iterator[datetime]:
    zone = ZoneInfo(each.zone)
    minutes = sorted({minute for hours in each.hours for minute in (hours.start, hours.end)})
    day = wall_clock(begin, zone).date()
    while minutes and (midnight := datetime.combine(day, time())) <= wall_clock(end, zone):
        for minute in minutes:
            at = instant(midnight + timedelta(minutes=minute), zone)
            if begin < at < end:
                yield at
        day += timedelta(days=1)
