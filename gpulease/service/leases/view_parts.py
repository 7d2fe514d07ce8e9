"""The parts of a lease and of a class as everybody sees them.

Of a lease: devices, Keep, end, upgrade, budget.  Of a GPU class: what is on offer, what of it is
free, what can be added.  Pure: from the record, the snapshot and the policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import floor

from gpulease.errors import GPULeaseError
from gpulease.policy import budgets, capacity, lifecycle, queue
from gpulease.policy.capacity import Growth
from gpulease.policy.catalog import percent
from gpulease.policy.explanation.explain import beyond_share
from gpulease.policy.fitting import suits
from gpulease.policy.model import (
    Device,
    EndReason,
    GPUClass,
    Lease,
    LeaseState,
    PolicyDocument,
    Shape,
    Snapshot,
    TimeOuts,
    once_for_devices,
)
from gpulease.policy.reservations import departures
from gpulease.policy.reservations.departures import of_hours
from gpulease.policy.reservations.seats import kept_units
from gpulease.protocol.service import (
    Blocker,
    BudgetView,
    ClassView,
    DeviceView,
    EndView,
    KeepView,
    LeaseView,
    UpgradeView,
)
from gpulease.runs.model import run_of
from gpulease.texts import joined

#: Utilisation is shown in steps, so that noise makes no event.
_STEP = 0.05


def device_views(lease: Lease, known: Mapping[str, Device]) -> list[DeviceView]:
    """Return the lease's devices, of those that are known by their identifiers."""
    return devices_once(known[uuid] for uuid in lease.devices if uuid in known)


def devices_once(devices: Iterable[Device]) -> list[DeviceView]:
    """Return each device once; a card, where they are parts of it."""
    found = {each["uuid"]: each for each in map(_device_view, devices)}
    return list(found.values())


def _device_view(device: Device) -> DeviceView:
    return {
        "uuid": device.card or device.uuid,
        "name": device.name,
        "memory": device.memory,
        "simulated": device.simulated,
    }


def asides(lease: Lease, snapshot: Snapshot) -> str:
    """Return what is said of a lease beside its state: of reservations, of its share of a card, of
    its budget.
    """
    lab = departures.about(snapshot, lease)
    share = beyond_share(lease, snapshot.policy, snapshot.evidence.get(lease.id))
    hours = of_hours(snapshot, lease)
    return joined(lab, share, hours) if share or hours else lab


def of_card(view: LeaseView, lease: Lease) -> LeaseView:
    """Tell how much of a card a lease has, where it has a part of one: no count of parts."""
    if lease.card_parts:
        view["count"], view["min_count"], view["asked_count"] = 1, 0, 0
        asked, least = lease.asked_count, lease.min_count
        view["percent"] = queue.share(lease)
        view["asked_percent"] = queue.share(lease, asked) if asked else 0
        view["least_percent"] = queue.share(lease, least) if least else 0
    return view


def of_run(view: LeaseView, lease: Lease) -> LeaseView:
    """Name the background run whose server has a lease, where one has it."""
    if run := run_of(lease.server):
        view["run"] = run
    return view


def known_reason(lease: Lease) -> str:
    """Return why a lease ended where its server tells more than the lease, else ``""``."""
    gone = lease.end_reason is EndReason.SERVER_GONE
    return "run_ended" if gone and run_of(lease.server) else ""


def upgrade_view(shape: Shape | None, lease: Lease, policy: PolicyDocument) -> UpgradeView | None:
    """Return what a lease may become at its person's word, ``None`` for nothing."""
    if shape is None:
        return None
    gpu_class = policy.by_name.get(shape.gpu_class)
    title = (gpu_class.title if gpu_class is not None else "") or shape.gpu_class
    found: UpgradeView = {"gpu_class": shape.gpu_class, "title": title, "count": shape.count}
    if lease.card_parts:
        found["count"], found["percent"] = 1, queue.share(lease, shape.count)
    return found


def is_simulated(lease: Lease, snapshot: Snapshot) -> bool:
    """Say whether a lease has simulated devices, or will."""
    known = capacity.known_devices(snapshot)
    mine = [known[uuid] for uuid in lease.devices if uuid in known]
    if mine:
        return any(device.simulated for device in mine)
    pools = {each.name: each.pool for each in snapshot.policy.classes}
    return pools.get(lease.gpu_class) in simulated_pools(snapshot)


def keep_view(lease: Lease, outs: TimeOuts) -> KeepView:
    """Return whether Keep is allowed, how often and for how long."""
    refusal: GPULeaseError | None = lifecycle.keep_refusal(lease, outs)
    return {
        "allowed": refusal is None,
        "left": max(0, outs.keeps - lease.keeps),
        "seconds": outs.keep,
        "reason": "" if refusal is None else refusal.sentence,
    }


def end_view(lease: Lease, sentence: str) -> EndView | None:
    """Return why and when a lease ended, and what was lost."""
    if lease.end_reason is None or lease.ended is None:
        return None
    return {
        "reason": lease.end_reason.value,
        "sentence": sentence,
        "note": lease.end_note,
        "at": lease.ended.isoformat(),
        "parked": lease.parked,
        "lost": blockers(lease),
    }


def blockers(lease: Lease) -> list[Blocker]:
    """Return the variables that are not in the notebook."""
    return [
        {"name": name, "reason": "not_home", "sentence": why, "size": None}
        for name, why in lease.blockers
    ]


def lease_budget(lease: Lease, snapshot: Snapshot) -> BudgetView | None:
    """Return what is left of the budget that a lease is charged to."""
    if lease.state is LeaseState.ENDED or not snapshot.policy.projects.all:
        return None
    return budget_view(budgets.of_lease(snapshot, lease))


def budget_view(left: budgets.Remainder | None) -> BudgetView | None:
    """Return what is left as everybody sees it, ``None`` for no bound."""
    if left is None:
        return None
    return {
        "left": floor(max(0.0, left.left) * 100) / 100,
        "of": left.of,
        "until": left.until.isoformat(),
        "whose": "project" if left.whose == "project" else "person",
        "at_zero": "end" if left.at_zero == "end" else "borrow",
    }


def stepped(use: float | None) -> float | None:
    """Round a utilisation from 0 to 1 to what is shown of it."""
    return None if use is None else round(round(use / _STEP) * _STEP, 2)


def iso(at: datetime | None) -> str | None:
    """Return a time as text, to the second."""
    return at.isoformat(timespec="seconds") if at is not None else None


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
    """Return an estimate in whole minutes, rounded up, so that small changes send nothing."""
    if at is None:
        return None
    whole = at.replace(second=0, microsecond=0)
    up = whole if whole == at else whole + timedelta(minutes=1)
    return up.isoformat(timespec="seconds")
