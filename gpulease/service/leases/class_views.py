"""GPU classes as everybody sees them: what is on offer, what of it is free, what can be added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from gpulease.policy import capacity
from gpulease.policy.capacity.fitting import suits
from gpulease.policy.capacity.growth import Growth
from gpulease.policy.gpu_fractions import percent
from gpulease.policy.memo import once_for_devices
from gpulease.policy.model import Device, GPUClass, LeaseState, Snapshot
from gpulease.policy.reservations.seats import kept_units
from gpulease.protocol import ClassView

#: Devices that are alike to a class: their pool, and the classes of it that they can serve.
_Kinds = Mapping[tuple[str, tuple[str, ...] | None], int]


def on_offer(snapshot: Snapshot, next_starts: Mapping[str, datetime]) -> list[ClassView]:
    """Return the policy's classes, in its order; ``next_starts``: of who would ask now, by pool."""
    loose = [d for found in capacity.free_devices(snapshot).values() for d in found]
    free = _kinds(loose)
    total = _kinds(snapshot.devices)
    kept = Counter[str]()
    for window, units in kept_units(snapshot):
        kept[window.pool] += units
    growth = Growth(snapshot)
    queued = Counter(x.gpu_class for x in snapshot.leases if x.state is LeaseState.QUEUED)
    found: list[ClassView] = []
    for each in snapshot.policy.classes:
        view: ClassView = {
            "name": each.name,
            "title": each.title or each.name,
            "memory": each.memory,
            "simulated": each.pool in simulated_pools(snapshot),
            "total": _whole(each, snapshot.devices) if each.parts else _serving(each, total),
            "free": _whole(each, loose) if each.parts else _serving(each, free),
            "reserved": 0,
            "queued": queued[each.name],
            "pool": each.pool,
            "max_count": each.max_count,
            "price": each.price,
            "expected_start": _to_the_minute(next_starts.get(each.pool)),
        }
        if not each.parts:  # seats are whole GPUs
            view["reserved"] = min(view["free"], kept[each.pool])
            view["free"] -= view["reserved"]
        if each.parts:
            view["percent"] = percent(each.parts, each.card_parts)
            view["steps"] = [percent(step, each.card_parts) for step in each.steps]
        elastic = snapshot.policy.elastic.get(each.pool) if snapshot.grows else None
        if elastic is not None:
            view["provision"] = elastic.provision_time if growth.allows(each.pool) else None
            view["spot"] = elastic.spot
        found.append(view)
    return found


@once_for_devices
def simulated_pools(devices: Sequence[Device]) -> frozenset[str]:
    """Return the pools that have simulated devices."""
    return frozenset(device.pool for device in devices if device.simulated)


def _kinds(devices: Iterable[Device]) -> _Kinds:
    return Counter((device.pool, device.serves) for device in devices)


def _whole(gpu_class: GPUClass, devices: Iterable[Device]) -> int:
    """Return how many GPUs of a class that is a part of a card fit on the cards."""
    cards = Counter(
        device.card
        for device in devices
        if device.pool == gpu_class.pool and suits(gpu_class.name, device)
    )
    return sum(number // gpu_class.parts for number in cards.values())


def _serving(gpu_class: GPUClass, kinds: _Kinds) -> int:
    return sum(
        number
        for (pool, serves), number in kinds.items()
        if pool == gpu_class.pool and (serves is None or gpu_class.name in serves)
    )


def _to_the_minute(at: datetime | None) -> str | None:
    """Return an estimate in whole minutes, rounded up, so that its wavering tells nobody anew."""
    if at is None:
        return None
    whole = at.replace(second=0, microsecond=0)
    up = whole if whole == at else whole + timedelta(minutes=1)
    return up.isoformat(timespec="seconds")
