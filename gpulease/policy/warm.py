"""Lease pods that stand ready ahead: how many of each class there should be now.

A pod that stands ready holds a device that counts as free: it goes as soon as
somebody else needs the device, so it is never reckoned with as a lease is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from gpulease.policy import capacity
from gpulease.policy.calendar.local_time import wall_clock
from gpulease.policy.capacity.fitting import suits
from gpulease.policy.catalog import Warm
from gpulease.policy.limits import QUOTA
from gpulease.policy.model import LeaseState, Snapshot


@dataclass(frozen=True)
class Standing:
    """What should stand ready.

    ``pods``: how many of each class, that are nobody's yet.  ``granted``: the devices that are
    granted and on which nothing of their lease is seen yet, each with that lease and its class: a
    pod that stands ready there becomes the lease's, or makes room for it.
    """

    pods: Mapping[str, int] = field(default_factory=dict)
    granted: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def planned(warm: Warm, now: datetime) -> int:
    """Return how many pods the policy names for an instant: the most of the hours that hold."""
    wall = wall_clock(now, ZoneInfo(warm.zone))
    minute = wall.hour * 60 + wall.minute
    held = [
        each.pods
        for each in warm.hours
        if wall.weekday() in each.days and each.start <= minute < each.end
    ]
    return max(held, default=warm.pods)


def standing(snapshot: Snapshot) -> Standing | None:
    """Return what should stand ready, ``None`` while nobody knows what is free.

    Never more than there are free devices, which the classes of one pool share in their order, and
    none at all while a quota of the namespace keeps a request waiting: they count in it, too.
    """
    if not snapshot.capacity_known:
        return None
    classes = [each for each in snapshot.policy.classes if each.warm is not None]
    if any(x.state is LeaseState.QUEUED and x.reason == QUOTA for x in snapshot.leases):
        classes = []
    paused = {each.name for each in snapshot.policy.pools if each.paused}
    taken, pods = Counter[str](), {}
    for each in classes:
        assert each.warm is not None
        free = capacity.free_devices(snapshot).get(each.pool, ())
        there = sum(suits(each.name, device) for device in free)
        left = 0 if each.pool in paused else max(0, there - taken[each.pool])
        pods[each.name] = min(planned(each.warm, snapshot.now), left)
        taken[each.pool] += pods[each.name]
    return Standing(pods, _granted(snapshot))


def _granted(snapshot: Snapshot) -> dict[str, tuple[str, str]]:
    found = {}
    for lease in snapshot.leases:
        seen = snapshot.observed.get(lease.id)
        there = seen is not None and seen.attempt == lease.attempt and seen.devices
        if lease.state is LeaseState.STARTING and not there:
            found.update(dict.fromkeys(lease.devices, (lease.id, lease.gpu_class)))
    return found
