"""Leases and classes as everybody sees them.

Owns the putting together of a ``LeaseView`` from the record, the snapshot and the words of
``policy.explanation``.  Refuses to say who may see it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from gpulease.policy import capacity
from gpulease.policy.explanation.explain import explain, of_wish
from gpulease.policy.explanation.forecast import Forecast
from gpulease.policy.explanation.what_ends import what_ends
from gpulease.policy.model import (
    Device,
    Lease,
    LeaseState,
    PolicyDocument,
    Shape,
    Snapshot,
    TimeOuts,
)
from gpulease.policy.reservations.seats import time_outs_at
from gpulease.protocol import (
    BudgetView,
    ClassView,
    LeaseView,
)
from gpulease.providers.base import ServerStarted
from gpulease.service.control_loop.reconcile import Reconciler
from gpulease.service.hubs.auth import Asker
from gpulease.service.leases import standing
from gpulease.service.leases.class_views import on_offer
from gpulease.service.leases.details import newest, said_of, with_detail
from gpulease.service.leases.view_parts import (
    asides,
    blockers,
    devices_once,
    end_view,
    is_simulated,
    iso,
    keep_view,
    known_reason,
    lease_budget,
    of_card,
    of_run,
    stepped,
    upgrade_view,
)
from gpulease.texts import joined


class Figures(TypedDict):
    """The members of a view that move all the time."""

    ends_at: str | None
    ends_by: str
    verdict: str
    utilisation: float | None
    busy_share: float | None
    memory_used: int | None
    budget: BudgetView | None


@dataclass(frozen=True, eq=False)
class _MadeFrom:
    """All that a view says but its figures."""

    lease: Lease
    policy: PolicyDocument
    ahead: Forecast | None
    said: str
    devices: tuple[Device | None, ...]
    simulated: bool
    outs: TimeOuts
    asides: str
    notebook: str
    upgrade: Shape | None

    def same_as(self, other: _MadeFrom) -> bool:
        """Whether the same view comes of it; records and policies are compared by identity."""
        return (
            self.lease is other.lease
            and self.policy is other.policy
            and self._rest() == other._rest()
        )

    def _rest(self) -> tuple[object, ...]:
        return (
            self.ahead,
            self.said,
            self.devices,
            self.simulated,
            self.asides,
            self.outs,
            self.notebook,
            self.upgrade,
        )


@dataclass(frozen=True, eq=False)
class _Made:
    of: _MadeFrom
    figures: Figures
    view: LeaseView


class Views:
    """Makes views from the loop's newest snapshot, anew only for leases that something happened to.

    What a round costs is so in step with what changed, not with what there is.
    """

    def __init__(
        self,
        loop: Reconciler,
        server_started: ServerStarted | None,
        notebook_of: Callable[[Lease], str] = lambda _: "",
    ) -> None:
        self._loop = loop
        self._server_started = server_started
        self._notebook_of = notebook_of
        self._made: dict[str, _Made] = {}

    def lease(self, lease: Lease) -> LeaseView:
        """Return one lease as everybody sees it; never with its grant."""
        return self.leases([lease], self._loop.shown())[0]

    def leases(
        self,
        leases: Sequence[Lease],
        snapshot: Snapshot,
        busy: Mapping[str, float | None] | None = None,
    ) -> list[LeaseView]:
        """Return several leases as everybody sees them.

        ``busy``: the busy share, 0 to 1, of leases that are not in memory any more.
        """
        views = [self._view(lease, snapshot) for lease in leases]
        if not busy:
            return views
        return [
            {**view, "busy_share": stepped(busy[view["id"]])} if view["id"] in busy else view
            for view in views
        ]

    def forget(self, kept: Container[str]) -> None:
        """Drop the views of leases that are remembered no more."""
        for lease_id in [each for each in self._made if each not in kept]:
            del self._made[lease_id]

    def _view(self, lease: Lease, snapshot: Snapshot) -> LeaseView:
        """Return the view as it was made last, but for figures that moved meanwhile.

        Nobody changes a view: the same one is given again while nothing of it changed.
        """
        waits = lease.state is LeaseState.QUEUED
        ahead = self._loop.outlook.forecasts.get(lease.id) if waits else None
        seen = said_of(lease, snapshot.observed)
        known = capacity.known_devices(snapshot)
        made_from = _MadeFrom(
            lease,
            snapshot.policy,
            ahead,
            seen.said if seen is not None else "",
            tuple(known.get(uuid) for uuid in lease.devices),
            is_simulated(lease, snapshot),
            time_outs_at(snapshot, lease),
            asides(lease, snapshot),
            self._notebook_of(lease),
            self._loop.decider.within_reach.get(lease.id),
        )
        figures = self._figures(lease, snapshot)
        made = self._made.get(lease.id)
        if made is None or not made.of.same_as(made_from):
            made = _Made(made_from, figures, self._whole(made_from, figures))
        elif made.figures != figures:
            made = _Made(made_from, figures, _moved(made.view, figures))
        if lease.state is not LeaseState.ENDED:
            self._made[lease.id] = made
        return made.view

    def _figures(self, lease: Lease, snapshot: Snapshot) -> Figures:
        """Return what moves by itself while nothing happens to a lease."""
        evidence, ending = snapshot.evidence.get(lease.id), what_ends(snapshot, lease)
        return {
            "ends_at": iso(ending.at) if ending is not None else None,
            "ends_by": ending.cause if ending is not None else "",
            "verdict": evidence.verdict.value if evidence else "unknown",
            "utilisation": stepped(evidence.utilisation if evidence else None),
            "busy_share": stepped(self._loop.observer.busy_share(lease)),
            "memory_used": self._loop.observer.memory_used(lease),
            "budget": lease_budget(lease, snapshot),
        }

    @staticmethod
    def _whole(of: _MadeFrom, figures: Figures) -> LeaseView:
        lease, policy, outs, ahead = of.lease, of.policy, of.outs, of.ahead
        place, expected = (ahead.position, ahead.expected_start) if ahead else (None, None)
        said = explain(
            lease,
            policy,
            position=place,
            expected=expected,
            between=ahead.between if ahead else None,
            said=of.said,
            asides=joined(of.asides, of_wish(of.upgrade, lease, policy)),
            outs=outs,
            reason=known_reason(lease),
        )
        view: LeaseView = {
            "ends_at": figures["ends_at"],
            "ends_by": figures["ends_by"],
            "verdict": figures["verdict"],
            "utilisation": figures["utilisation"],
            "busy_share": figures["busy_share"],
            "memory_used": figures["memory_used"],
            "budget": figures["budget"],
            "id": lease.id,
            "version": lease.version,
            "user": lease.user,
            "server": lease.server,
            "kernel_id": lease.kernel_id,
            "origin": lease.origin,
            "project": lease.project,
            "gpu_class": lease.gpu_class,
            "asked_class": lease.asked_class,
            "needs": lease.needs,
            "count": lease.count,
            "min_count": lease.min_count,
            "asked_count": lease.asked_count,
            "upgrade": upgrade_view(of.upgrade, lease, policy),
            "nodes": lease.nodes,
            "simulated": of.simulated,
            "state": lease.state.value,
            "reason": lease.reason,
            "sentence": said.sentence,
            "next_step": said.next_step,
            "position": place,
            "expected_start": iso(expected),
            "expected_between": [
                each.isoformat() for each in (of.ahead and of.ahead.between) or ()
            ],
            "created": lease.created.isoformat(),
            "active_since": iso(lease.active_since),
            "hard_end": iso(lease.hard_end),
            "warned_until": iso(lease.warned_until),
            "drain_until": iso(lease.drain_until),
            "keep": keep_view(lease, outs),
            "devices": devices_once(each for each in of.devices if each is not None),
            "end": end_view(lease, said.sentence),
            "click_runs_cells": policy.click_runs_cells.value
            if lease.origin in ("page", "lab")
            else "none",
            "wait": outs.wait,
            "notebook": of.notebook,
            "blockers": [] if lease.state is LeaseState.ENDED else blockers(lease),
        }
        return of_run(of_card(view, lease), lease)

    def seen_by(
        self, asker: Asker, leases: Sequence[Lease], busy: Mapping[str, float | None] | None = None
    ) -> list[LeaseView]:
        """Return leases as this asker sees them: an admin with the provider's own words."""
        snapshot = self._loop.shown()
        views = self.leases(leases, snapshot, busy)
        newer = [newest(each, snapshot.observed) for each in leases]
        return [with_detail(asker, each, view) for each, view in zip(newer, views, strict=True)]

    def granted(self, lease: Lease, view: LeaseView) -> LeaseView:
        """Return the view as the lease's own server sees it: with the grant, while there is one."""
        grant = self._server_started.grant(lease) if self._server_started else None
        if grant is None:
            return view
        own = view.copy()
        own["grant"] = grant
        return own

    def classes(self, snapshot: Snapshot | None = None) -> list[ClassView]:
        """Return what is on offer and what of it is free now."""
        return on_offer(snapshot or self._loop.shown(), self._loop.outlook.next_starts)

    def uses(self, snapshot: Snapshot) -> Iterable[tuple[str, str]]:
        """Return each device's pool and use, for the metrics."""
        free = {d.uuid for found in capacity.free_devices(snapshot).values() for d in found}
        return standing.device_uses(snapshot, free)


def _moved(view: LeaseView, figures: Figures) -> LeaseView:
    moved = view.copy()
    moved["ends_at"], moved["ends_by"] = figures["ends_at"], figures["ends_by"]
    moved["verdict"] = figures["verdict"]
    moved["utilisation"], moved["busy_share"] = figures["utilisation"], figures["busy_share"]
    moved["budget"], moved["memory_used"] = figures["budget"], figures["memory_used"]
    return moved
