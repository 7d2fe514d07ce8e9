"""Short ways to write policies, leases, evidence and snapshots."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gpulease.policy.model import (
    Device,
    EndReason,
    Evidence,
    GPUClass,
    Lease,
    LeaseState,
    Observed,
    PolicyDocument,
    Pool,
    Snapshot,
    TimeOuts,
    Verdict,
)

NOW = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)
OUTS = TimeOuts()


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def policy(outs: TimeOuts = OUTS, **changed: Any) -> PolicyDocument:
    classes = (
        GPUClass("t4", "cards", "T4", max_count=4, time_outs=outs),
        GPUClass("slice", "slices", "Slice", time_outs=outs),
    )
    base = PolicyDocument(
        1, (Pool("cards"), Pool("slices")), classes, "t4", outs, leases_per_user=2
    )
    return replace(base, **changed)


def cards(count: int, **changed: Any) -> tuple[Device, ...]:
    return tuple(Device(f"GPU-{n}", "cards", **changed) for n in range(count))


def request(number: int, **changed: Any) -> Lease:
    """Request number n of user n, asked n seconds after NOW minus an hour."""
    asked = at(number - 3600)
    base = Lease(
        id=f"r{number}",
        user=f"user{number}",
        server="",
        gpu_class="t4",
        count=1,
        ticket=(asked, number),
        created=asked,
        state_since=asked,
    )
    return replace(base, **changed)


def active(number: int, device: str | None = None, **changed: Any) -> Lease:
    since = at(-1800)
    base = request(
        number,
        state=LeaseState.ACTIVE,
        state_since=since,
        active_since=since,
        claimed=since,
        attempt=1,
        devices=(device or f"GPU-{number}",),
        hard_end=at(7200),
        reason="connected",
    )
    return replace(base, **changed)


def warned(number: int, left: float = 30, **changed: Any) -> Lease:
    base = active(
        number,
        state=LeaseState.WARNED,
        reason="idle",
        warned_until=at(left),
        end_reason_wanted=EndReason.IDLE,
        state_since=at(left - OUTS.warning),
    )
    return replace(base, **changed)


def draining(number: int, left: float = 30, **changed: Any) -> Lease:
    base = active(
        number,
        state=LeaseState.DRAINING,
        reason="idle",
        drain_until=at(left),
        end_reason_wanted=EndReason.IDLE,
        state_since=at(left - OUTS.drain_max),
    )
    return replace(base, **changed)


def starting(number: int, device: str | None = None, **changed: Any) -> Lease:
    base = request(
        number,
        state=LeaseState.STARTING,
        state_since=at(-5),
        attempt=1,
        devices=(device or f"GPU-{number}",),
        reason="starting",
    )
    return replace(base, **changed)


def idle(seconds: float, **changed: Any) -> Evidence:
    base = Evidence(Verdict.IDLE, at(-seconds), idle_for=seconds, quiet_for=seconds)
    return replace(base, **changed)


def turned_idle(seconds: float) -> Evidence:
    return idle(seconds, before=Verdict.BUSY)


def busy() -> Evidence:
    return Evidence(Verdict.BUSY, at(-60), utilisation=0.9, cells=1)


def quiet(seconds: float) -> Evidence:
    return Evidence(Verdict.QUIET, at(-seconds), quiet_for=seconds, cells=1)


def unknown(seconds: float, quiet_for: float = 0) -> Evidence:
    return Evidence(Verdict.UNKNOWN, at(-seconds), quiet_for=quiet_for, unknown_since=at(-seconds))


def seen(lease: Lease, **changed: Any) -> Observed:
    return replace(Observed(lease.id, lease.attempt, connected=True), **changed)


def snapshot(
    leases: Iterable[Lease],
    devices: int | tuple[Device, ...] = 1,
    evidence: Mapping[str, Evidence] | None = None,
    observed: Iterable[Observed] = (),
    **changed: Any,
) -> Snapshot:
    base = Snapshot(
        now=NOW,
        policy=policy(),
        devices=cards(devices) if isinstance(devices, int) else devices,
        leases=tuple(leases),
        evidence=evidence or {},
        observed={each.lease_id: each for each in observed},
    )
    return replace(base, **changed)
