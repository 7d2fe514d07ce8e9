"""What a plan decided about which leases, and from what: written down when it is decided."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpulease.policy import budgets, capacity, queue
from gpulease.policy.explanation import forecast
from gpulease.policy.fairness import standing
from gpulease.policy.health import observed_of
from gpulease.policy.idleness import counted, idle_limit
from gpulease.policy.model import Action, Alert, Lease, LeaseState, Snapshot, once
from gpulease.policy.reservations.departures import OVER, departures
from gpulease.policy.reservations.seats import time_outs_at
from gpulease.policy.shares import Node
from gpulease.sizes import say_duration
from gpulease.texts import instant

#: An input in words, and its numbers (JSON values).
Input = tuple[str, dict[str, Any]]


#: Stands in the words for the person for whom a GPU was taken: ``Decision.for_user``.
FOR_USER: Final = "{for_user}"


@dataclass(frozen=True)
class Decision:
    """The inputs of a plan that concern one lease: in sentences, and their numbers by name."""

    user: str
    words: tuple[str, ...]
    numbers: dict[str, Any]
    for_user: str = ""


def decisions(snapshot: Snapshot, actions: Sequence[Action]) -> dict[str, Decision]:
    """Return what a plan saw of each lease that it changes, by the lease."""
    leases = _by_id(snapshot)
    mine = [each for each in actions if not isinstance(each, Alert) and each.lease_id in leases]
    return {
        each.lease_id: decision(snapshot, leases[each.lease_id], each, len(actions))
        for each in mine
    }


def decision(snapshot: Snapshot, lease: Lease, mine: Action | None, actions: int = 1) -> Decision:
    """Return what a plan saw of one lease.

    ``mine``: what the plan does to it; ``actions``: how many the plan has in all.
    """
    request = _by_id(snapshot).get(_nominee(lease, mine) or "")
    found = list(_inputs(snapshot, lease, request))
    numbers = {name: value for _, some in found for name, value in some.items()}
    numbers |= {"policy_version": snapshot.policy.version, "actions": actions}
    numbers["action"] = type(mine).__name__ if mine is not None else ""
    words = tuple(words for words, _ in found if words)
    return Decision(lease.user, words, numbers, request.user if request is not None else "")


@once
def _by_id(snapshot: Snapshot) -> Mapping[str, Lease]:
    return {each.id: each for each in snapshot.leases}


def _inputs(snapshot: Snapshot, lease: Lease, request: Lease | None) -> Iterator[Input]:
    yield _pool(snapshot, lease)
    if lease.state is LeaseState.QUEUED:
        yield _place(snapshot, lease)
    else:
        yield _use(snapshot, lease, pressed=request is not None)
        yield _shown(snapshot, lease)
    yield from _shares(snapshot, lease)
    yield from _budget(snapshot, lease)
    yield from _claimant(request)
    yield from _departure(snapshot, lease)
    yield from _windows(snapshot, queue.pool_of(snapshot, lease))


@once
def _waiting(snapshot: Snapshot) -> Mapping[str, int]:
    """Return how many requests wait for each pool."""
    return Counter(queue.pool_of(snapshot, each) for each in queue.waiting(snapshot))


def _pool(snapshot: Snapshot, lease: Lease) -> Input:
    pool = queue.pool_of(snapshot, lease)
    total = capacity.pool_sizes(snapshot)[pool]
    free = len(capacity.free_devices(snapshot).get(pool, ()))
    out = total - len(capacity.in_service(snapshot).get(pool, ()))
    waiting = _waiting(snapshot)[pool]
    words = (
        f"GPUs of pool {pool}: {total}, free: {free}, out of service: {out}; waiting: {waiting}."
    )
    if not snapshot.capacity_known:
        words = f"{words} What is there was not known for certain, so nothing was granted."
    return words, {
        "pool": pool,
        "devices": total,
        "free": free,
        "out_of_service": out,
        "waiting": waiting,
        "capacity_known": snapshot.capacity_known,
    }


def _place(snapshot: Snapshot, lease: Lease) -> Input:
    place = forecast.position(snapshot, lease.id)
    server = "" if lease.server_ready else " Its notebook server was not up yet."
    return f"It was number {place} in the line.{server}", {
        "position": place,
        "server_ready": lease.server_ready,
    }


def _use(snapshot: Snapshot, lease: Lease, *, pressed: bool) -> Input:
    evidence, outs = snapshot.evidence.get(lease.id), time_outs_at(snapshot, lease)
    if evidence is None:
        return "Nothing was known of its use.", {"verdict": "unknown"}
    idle, quiet = counted(lease, evidence, snapshot.now)
    limit = idle_limit(outs, pressed)
    waited = " while somebody waits" if pressed else ""
    words = (
        f"Its GPU was {evidence.verdict.value} since {instant(evidence.since)}."
        f" {_said(idle)} counted as idle (limit{waited}: {_said(limit)}),"
        f" {_said(quiet)} as quiet (limit: {_said(outs.quiet)})."
    )
    return words, {
        "verdict": evidence.verdict.value,
        "since": evidence.since.isoformat(),
        "idle": round(idle, 1),
        "idle_limit": _finite(limit),
        "quiet": round(quiet, 1),
        "quiet_limit": _finite(outs.quiet),
        "utilisation": evidence.utilisation,
        "cells": evidence.cells,
    }


def _shown(snapshot: Snapshot, lease: Lease) -> Input:
    seen = observed_of(snapshot, lease)
    if seen is None:
        return "The provider showed nothing of it.", {"shown": ""}
    facts = [
        name.replace("_", " ")
        for name in ("connected", "in_use", "gone", "parentless", "left")
        if getattr(seen, name)
    ]
    facts += [each for each in (seen.stage, seen.failed, seen.drained) if each]
    shown = ", ".join(facts) or "nothing of note"
    return f"The provider showed: {shown}.", {"shown": shown, "detail": seen.detail}


def _shares(snapshot: Snapshot, lease: Lease) -> Iterator[Input]:
    tree = standing(snapshot).get(queue.pool_of(snapshot, lease))
    if tree is None:
        return
    path = snapshot.policy.projects.above(snapshot.policy.projects.home(lease.project))
    node: Node | None = tree.root
    for project in reversed(tuple(path)):
        node = node.below.get(project.name) if node is not None else None
    if node is None:
        return
    numbers = {
        "project": node.name,
        "held": node.held,
        "share": node.share,
        "guarantee": node.guarantee,
        "limit": node.limit,
    }
    if lease.id in budgets.exhausted(snapshot):
        words = "Its budget is used up: it has what nobody else wants, and no share there."
        yield words, {"project": node.name, "beyond_budget": True}
        return
    yield (
        f"Project {node.name} held {node.held} of a share of {node.share} there"
        f" (guaranteed: {node.guarantee}).",
        numbers,
    )
    if snapshot.policy.projects.strength > 0:
        yield from _past_use(node)


def _past_use(node: Node) -> Iterator[Input]:
    """Say what past use, which decays, made of a project's weight beside those it shares with."""
    every = node.parent.used_below if node.parent is not None else 0.0
    if node.used or every:
        yield (
            f"Past use that still counts, of the whole pool: {node.used:.1%} by {node.name},"
            f" {every:.1%} by all that want GPUs now.",
            {"past_use": round(node.used, 4), "past_use_of_all": round(every, 4)},
        )


def _budget(snapshot: Snapshot, lease: Lease) -> Iterator[Input]:
    left = budgets.of_lease(snapshot, lease)
    if left is not None:
        whose = "project's" if left.whose == "project" else "person's"
        yield (
            f"Of the {whose} budget {max(0.0, left.left):.1f} of {left.of:g} GPU-hours were left.",
            {"budget_left": round(left.left, 2), "budget": left.of},
        )


def _nominee(lease: Lease, mine: Action | None) -> str | None:
    found: str | None = getattr(mine, "nominated_for", None)
    return found or lease.nominated_for


def _claimant(request: Lease | None) -> Iterator[Input]:
    if request is not None:
        yield (
            f"It was taken for request {request.id} of {FOR_USER},"
            f" which waited since {instant(request.created)}.",
            {"for": request.id},
        )


def _departure(snapshot: Snapshot, lease: Lease) -> Iterator[Input]:
    """Say for which window a lease has to go: it is told before the window holds anything."""
    leaves = departures(snapshot).get(lease.id)
    if leaves is not None:
        of, own = leaves.window.of, leaves.reason == OVER
        why = "is over" if own else f"needs GPUs from {instant(leaves.window.start)}"
        yield (
            f"It has to go by {instant(leaves.until)}: {of.name} of {of.group} {why}.",
            {"leaves_for": leaves.window.key},
        )


def _windows(snapshot: Snapshot, pool: str) -> Iterator[Input]:
    near = [
        each
        for each in snapshot.windows
        if each.pool == pool and each.hold_from <= snapshot.now < each.last_end
    ]
    if near:
        names = ", ".join(f"{each.of.name} of {each.of.group}" for each in near)
        yield f"Reserved there: {names}.", {"windows": [each.key for each in near]}


def _finite(seconds: float) -> float | None:
    """Return a time-out as JSON has it: ``None`` for one that never comes."""
    return None if math.isinf(seconds) else seconds


def _said(seconds: float) -> str:
    if math.isinf(seconds):
        return "none"
    return say_duration(float(round(seconds))) if round(seconds) else "0 s"
