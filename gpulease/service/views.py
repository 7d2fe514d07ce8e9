"""Leases and classes as everybody sees them.

Owns the putting together of a ``LeaseView`` from the record, the snapshot and the words of
``policy.explanation``.  Refuses to say who may see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from gpulease.errors import GPULeaseError
from gpulease.policy import capacity, lifecycle
from gpulease.policy.evidence.idle_case import warned_at
from gpulease.policy.explanation import forecast, labs
from gpulease.policy.explanation.explain import explain
from gpulease.policy.memo import once
from gpulease.policy.model import Device, Lease, LeaseState, Snapshot, TimeOuts
from gpulease.policy.reservations.seats import time_outs_at
from gpulease.protocol import Blocker, ClassView, DeviceView, EndView, KeepView, LeaseView
from gpulease.providers.base import Provider
from gpulease.service import standing
from gpulease.service.auth import Asker
from gpulease.service.details import newest, said_of, with_detail
from gpulease.service.reconcile import Reconciler

#: Utilisation is shown in steps, so that noise makes no event.
_STEP = 0.05


class Views:
    """Makes views from the loop's newest snapshot."""

    def __init__(self, loop: Reconciler, provider: Provider) -> None:
        self._loop = loop
        self._provider = provider

    def lease(self, lease: Lease) -> LeaseView:
        """Return one lease as everybody sees it; never with its grant."""
        return self.leases([lease], self._loop.snapshot())[0]

    def leases(
        self,
        leases: Sequence[Lease],
        snapshot: Snapshot,
        busy: Mapping[str, float | None] | None = None,
    ) -> list[LeaseView]:
        """Return several leases as everybody sees them.

        ``busy``: the busy share, 0 to 1, of leases that are not in memory any more.
        """
        asking = any(lease.state is LeaseState.QUEUED for lease in leases)
        found = forecast.forecasts(snapshot) if asking else {}
        views = [self._view(lease, snapshot, found.get(lease.id)) for lease in leases]
        for view in views:
            if busy and view["id"] in busy:
                view["busy_share"] = _stepped(busy[view["id"]])
        return views

    def _view(self, lease: Lease, snapshot: Snapshot, ahead: forecast.Forecast | None) -> LeaseView:
        outs = time_outs_at(snapshot, lease)
        place = ahead.position if ahead else None
        expected = ahead.expected_start if ahead else None
        seen = said_of(lease, snapshot.observed)
        said = explain(
            lease,
            snapshot.policy,
            position=place,
            expected=expected,
            said=seen.said if seen is not None else "",
            lab=labs.about(snapshot, lease),
            outs=outs,
        )
        evidence = snapshot.evidence.get(lease.id)
        devices = device_views(lease, capacity.known_devices(snapshot))
        return {
            "id": lease.id,
            "version": lease.version,
            "user": lease.user,
            "server": lease.server,
            "kernel_id": lease.kernel_id,
            "origin": lease.origin,
            "gpu_class": lease.gpu_class,
            "asked_class": lease.asked_class,
            "count": lease.count,
            "simulated": _simulated(lease, snapshot, devices),
            "state": lease.state.value,
            "reason": lease.reason,
            "sentence": said.sentence,
            "next_step": said.next_step,
            "position": place,
            "expected_start": _iso(expected),
            "created": lease.created.isoformat(),
            "active_since": _iso(lease.active_since),
            "hard_end": _iso(lease.hard_end),
            "warned_until": _iso(lease.warned_until),
            "drain_until": _iso(lease.drain_until),
            "idle_end": _iso(warned_at(lease, evidence, snapshot.now, outs)),
            "verdict": evidence.verdict.value if evidence else "unknown",
            "utilisation": _stepped(evidence.utilisation if evidence else None),
            "keep": _keep(lease, outs),
            "devices": devices,
            "end": _end(lease, said.sentence),
            "click_runs_cells": lease.origin == "page" and snapshot.policy.click_runs_cells,
            "wait": outs.wait,
            "blockers": [] if lease.state is LeaseState.ENDED else _blockers(lease),
            "busy_share": _stepped(self._loop.busy_share(lease.id)),
        }

    def seen_by(
        self, asker: Asker, leases: Sequence[Lease], busy: Mapping[str, float | None] | None = None
    ) -> list[LeaseView]:
        """Return leases as this asker sees them: an admin with the provider's own words."""
        snapshot = self._loop.snapshot()
        views = self.leases(leases, snapshot, busy)
        newer = [newest(each, snapshot.observed) for each in leases]
        return [with_detail(asker, each, view) for each, view in zip(newer, views, strict=True)]

    def granted(self, lease: Lease, view: LeaseView) -> LeaseView:
        """Return the view as the lease's own server sees it: with the grant, while there is one."""
        grant = self._provider.grant(lease)
        if grant is None:
            return view
        own = view.copy()
        own["grant"] = grant
        return own

    def classes(self, snapshot: Snapshot | None = None) -> list[ClassView]:
        """Return what is on offer and what of it is free now."""
        snapshot = snapshot or self._loop.snapshot()
        free = capacity.free_devices(snapshot)
        total = Counter(device.pool for device in snapshot.devices)
        queued = Counter(
            lease.gpu_class for lease in snapshot.leases if lease.state is LeaseState.QUEUED
        )
        return [
            {
                "name": each.name,
                "title": each.title or each.name,
                "memory": each.memory,
                "simulated": each.pool in _simulated_pools(snapshot),
                "total": total[each.pool],
                "free": len(free.get(each.pool, ())),
                "queued": queued[each.name],
                "max_count": each.max_count,
            }
            for each in snapshot.policy.classes
        ]

    def uses(self, snapshot: Snapshot) -> Iterable[tuple[str, str]]:
        """Return each device's pool and use, for the metrics."""
        free = {d.uuid for found in capacity.free_devices(snapshot).values() for d in found}
        return standing.device_uses(snapshot, free)


def device_views(lease: Lease, known: Mapping[str, Device]) -> list[DeviceView]:
    """Return the lease's devices, of those that are known by their identifiers."""
    return [
        {
            "uuid": device.uuid,
            "name": device.name,
            "memory": device.memory,
            "simulated": device.simulated,
        }
        for uuid in lease.devices
        if (device := known.get(uuid)) is not None
    ]


def _simulated(lease: Lease, snapshot: Snapshot, devices: Sequence[DeviceView]) -> bool:
    if devices:
        return any(device["simulated"] for device in devices)
    pools = {each.name: each.pool for each in snapshot.policy.classes}
    pool = pools.get(lease.gpu_class)
    return pool in _simulated_pools(snapshot)


@once
def _simulated_pools(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(device.pool for device in snapshot.devices if device.simulated)


def _keep(lease: Lease, outs: TimeOuts) -> KeepView:
    refusal: GPULeaseError | None = lifecycle.keep_refusal(lease, outs)
    return {
        "allowed": refusal is None,
        "left": max(0, outs.keeps - lease.keeps),
        "seconds": outs.keep,
        "reason": "" if refusal is None else refusal.sentence,
    }


def _end(lease: Lease, sentence: str) -> EndView | None:
    if lease.end_reason is None or lease.ended is None:
        return None
    return {
        "reason": lease.end_reason.value,
        "sentence": sentence,
        "note": lease.end_note,
        "at": lease.ended.isoformat(),
        "parked": lease.parked,
        "lost": _blockers(lease),
    }


def _blockers(lease: Lease) -> list[Blocker]:
    return [
        {"name": name, "reason": "not_home", "sentence": why, "size": None}
        for name, why in lease.blockers
    ]


def _stepped(use: float | None) -> float | None:
    return None if use is None else round(round(use / _STEP) * _STEP, 2)


def _iso(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at is not None else None
