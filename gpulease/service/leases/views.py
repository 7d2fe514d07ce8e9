"""Leases and classes as each person sees them: the record, the snapshot and words put together.

The provider's own words (names of nodes, images, volumes) go to admins alone.  Nobody is told to do
what only the holder can, and only the holder sees which notebook uses a lease.  Also here: figures
for the alerts, of how long things have stood that should not.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypedDict

from gpulease.policy import capacity
from gpulease.policy.explanation.explain import Explanation, admin_step, explain, of_wish
from gpulease.policy.explanation.forecast import Forecast, what_ends
from gpulease.policy.model import (
    Device,
    Lease,
    LeaseState,
    Observed,
    PolicyDocument,
    Shape,
    Snapshot,
    TimeOuts,
)
from gpulease.policy.reservations.seats import time_outs_at
from gpulease.protocol.service import BudgetView, ClassView, LeaseView
from gpulease.providers.base import ServerStarted
from gpulease.service.control_loop.reconcile import Reconciler
from gpulease.service.hubs.auth import Asker
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
    on_offer,
    stepped,
    upgrade_view,
)
from gpulease.texts import joined


def said_of(lease: Lease, observed: Mapping[str, Observed]) -> Observed | None:
    """Return what is seen of a lease's present start, ``None`` when it does not start."""
    seen = observed.get(lease.id)
    starts = lease.state is LeaseState.STARTING
    return seen if starts and seen is not None and seen.attempt == lease.attempt else None


def newest(lease: Lease, observed: Mapping[str, Observed]) -> Lease:
    """Return the lease with the newest of the provider's words."""
    seen = said_of(lease, observed)
    return replace(lease, detail=seen.detail) if seen is not None and seen.detail else lease


def with_detail(asker: Asker, lease: Lease, view: LeaseView) -> LeaseView:
    """Return the view for this asker.

    An admin reads the provider's own words on the lease and, of others' leases, an admin's next
    step; an instructor reads none there.
    """
    if asker.name == lease.user and not asker.admin:
        return view  # the very one, so that it is written once for all who read it
    own = view.copy()
    if asker.name != lease.user:
        own["notebook"] = ""
    if asker.admin and lease.detail:
        own["detail"] = lease.detail
    if asker.name != lease.user:
        own["next_step"] = admin_step(lease) if asker.admin else ""
    return own


#: Leases whose use counts: those that start have none yet, those that leave are not judged.
_JUDGED = frozenset({LeaseState.ACTIVE, LeaseState.WARNED})


def silences(snapshot: Snapshot) -> dict[str, float]:
    """Return, for each class, the seconds for which its most silent lease has had no evidence."""

    def silent(lease: Lease) -> datetime | None:
        evidence = snapshot.evidence.get(lease.id)
        if lease.state not in _JUDGED:
            return None
        return evidence.unknown_since if evidence is not None else lease.active_since

    return _longest(snapshot, silent)


def overdue(snapshot: Snapshot) -> dict[str, float]:
    """Return, for each class, the seconds by which its latest reclaim is past its bound.

    A warning has its end and a drain its longest time; what has ended has none left, and counts
    while the provider still shows it.
    """

    def bound(lease: Lease) -> datetime | None:
        if lease.state is LeaseState.WARNED:
            return lease.warned_until
        if lease.state is LeaseState.DRAINING:
            return lease.drain_until
        if lease.state is LeaseState.ENDED and lease.id in snapshot.observed:
            return lease.ended
        return None

    return _longest(snapshot, bound)


def device_uses(snapshot: Snapshot, free: set[str]) -> Iterator[tuple[str, str]]:
    """Yield each device's pool and use: ``free``, ``used``, ``quarantined`` or ``lost``.

    Args:
        snapshot: with all devices.
        free: identifiers of those that may be granted now.
    """
    for device in snapshot.devices:
        kept_out = device.serves == () and device.occupied_by is None
        if device.lost:
            yield device.pool, "lost"
        elif not device.healthy or kept_out:
            yield device.pool, "quarantined"
        else:
            yield device.pool, "free" if device.uuid in free else "used"


def _longest(snapshot: Snapshot, since: Callable[[Lease], datetime | None]) -> dict[str, float]:
    found = dict.fromkeys((each.name for each in snapshot.policy.classes), 0.0)
    for lease in snapshot.leases:
        at = since(lease)
        if at is not None:
            seconds = (snapshot.now - at).total_seconds()
            found[lease.gpu_class] = max(found.get(lease.gpu_class, 0.0), seconds)
    return found


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


@dataclass(eq=False)
class Views:
    """Makes views from the loop's newest snapshot; rebuilds only those of leases that changed.

    What a round costs is so in step with what changed, not with what there is.
    """

    loop: Reconciler
    server_started: ServerStarted | None
    notebook_of: Callable[[Lease], str] = lambda _: ""

    def __post_init__(self) -> None:
        self._made: dict[str, _Made] = {}

    def lease(self, lease: Lease) -> LeaseView:
        """Return one lease as everybody sees it; never with its grant."""
        return self.leases([lease], self.loop.shown())[0]

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
        ahead = self.loop.outlook.forecasts.get(lease.id) if waits else None
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
            self.notebook_of(lease),
            self.loop.decider.within_reach.get(lease.id),
        )
        figures = self._figures(lease, snapshot)
        made = self._made.get(lease.id)
        if made is None or not made.of.same_as(made_from):
            made = _Made(made_from, figures, self._whole(made_from, figures))
        elif made.figures != figures:
            made = _Made(made_from, figures, {**made.view, **figures})
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
            "busy_share": stepped(self.loop.observer.minutes.busy_share(lease.id)),
            "memory_used": self.loop.observer.watch.memory_used(lease),
            "budget": lease_budget(lease, snapshot),
        }

    @staticmethod
    def _whole(of: _MadeFrom, figures: Figures) -> LeaseView:
        lease, policy, outs, ahead = of.lease, of.policy, of.outs, of.ahead
        said = _said(of)
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
            "position": ahead.position if ahead else None,
            "expected_start": iso(ahead.expected_start if ahead else None),
            "expected_between": [each.isoformat() for each in (ahead and ahead.between) or ()],
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
        snapshot = self.loop.shown()
        views = self.leases(leases, snapshot, busy)
        newer = [newest(each, snapshot.observed) for each in leases]
        return [with_detail(asker, each, view) for each, view in zip(newer, views, strict=True)]

    def granted(self, lease: Lease, view: LeaseView) -> LeaseView:
        """Return the view as the lease's own server sees it: with the grant, while there is one."""
        grant = self.server_started.grant(lease) if self.server_started else None
        if grant is None:
            return view
        own = view.copy()
        own["grant"] = grant
        return own

    def classes(self, snapshot: Snapshot | None = None) -> list[ClassView]:
        """Return what is on offer and what of it is free now."""
        return on_offer(snapshot or self.loop.shown(), self.loop.outlook.next_starts)

    def uses(self, snapshot: Snapshot) -> Iterable[tuple[str, str]]:
        """Return each device's pool and use, for the metrics."""
        free = {d.uuid for found in capacity.free_devices(snapshot).values() for d in found}
        return device_uses(snapshot, free)


def _said(of: _MadeFrom) -> Explanation:
    """Return the sentence of a lease, and what its holder can do."""
    ahead = of.ahead
    return explain(
        of.lease,
        of.policy,
        position=ahead.position if ahead else None,
        expected=ahead.expected_start if ahead else None,
        between=ahead.between if ahead else None,
        said=of.said,
        asides=joined(of.asides, of_wish(of.upgrade, of.lease, of.policy)),
        outs=of.outs,
        reason=known_reason(of.lease),
    )
