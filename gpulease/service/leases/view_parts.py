"""The parts of a lease as everybody sees it: devices, Keep, end, upgrade, budget.

Pure: from the record, the snapshot and the policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import floor

from gpulease.errors import GPULeaseError
from gpulease.policy import budgets, capacity, gpu_fractions, lifecycle
from gpulease.policy.explanation import labs
from gpulease.policy.explanation.explain import beyond_share
from gpulease.policy.explanation.labs import of_hours
from gpulease.policy.model import (
    Device,
    EndReason,
    Lease,
    LeaseState,
    PolicyDocument,
    Shape,
    Snapshot,
    TimeOuts,
)
from gpulease.protocol import (
    Blocker,
    BudgetView,
    DeviceView,
    EndView,
    KeepView,
    LeaseView,
    UpgradeView,
)
from gpulease.runs.names import run_of
from gpulease.service.leases.class_views import simulated_pools
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
    lab = labs.about(snapshot, lease)
    share = beyond_share(lease, snapshot.policy, snapshot.evidence.get(lease.id))
    hours = of_hours(snapshot, lease)
    return joined(lab, share, hours) if share or hours else lab


def of_card(view: LeaseView, lease: Lease) -> LeaseView:
    """Tell how much of a card a lease has, where it has a part of one: no count of parts."""
    if lease.card_parts:
        view["count"], view["min_count"], view["asked_count"] = 1, 0, 0
        asked, least = lease.asked_count, lease.min_count
        view["percent"] = gpu_fractions.share(lease)
        view["asked_percent"] = gpu_fractions.share(lease, asked) if asked else 0
        view["least_percent"] = gpu_fractions.share(lease, least) if least else 0
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
        found["count"], found["percent"] = 1, gpu_fractions.share(lease, shape.count)
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
