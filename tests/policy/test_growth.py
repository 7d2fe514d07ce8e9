"""A plan costs in step with what there is: a hub of hundreds must not be slow by its size.

Counted are the steps that the interpreter makes, so that a busy machine changes nothing.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from gpulease.policy.admission_check import Ask, answer
from gpulease.policy.explanation import forecast
from gpulease.policy.explanation.decision import decisions
from gpulease.policy.model import Device, Snapshot, once_for_devices
from gpulease.policy.planner import plan
from tests.policy.build import (
    OUTS,
    active,
    cards,
    draining,
    idle,
    policy,
    request,
    seen,
    snapshot,
    starting,
)
from tests.policy.fairness.build import project, shared

NODES = 10
POLICY = policy(leases_per_user=2)


def devices(number: int, holders: dict[str, str] | None = None) -> tuple[Device, ...]:
    """Return devices on a fixed number of nodes, each with whom it shows."""
    return tuple(
        replace(each, node=f"n{index % NODES}", occupied_by=(holders or {}).get(each.uuid))
        for index, each in enumerate(cards(number))
    )


def all_queued(number: int) -> Snapshot:
    return snapshot([request(n) for n in range(number)], devices(number), policy=POLICY)


def all_starting(number: int) -> Snapshot:
    """Each landed on another device than it was granted, and half of them only now."""
    leases = [starting(n) for n in range(number)]
    landed = [seen(leases[n], devices=(f"GPU-{number - 1 - n}",)) for n in range(number // 2)]
    holders = {each.devices[0]: each.lease_id for each in landed}
    return snapshot(leases, devices(number, holders), {}, landed, policy=POLICY)


def all_active(number: int, *, idle_for: float = 5, waiting: bool = False) -> Snapshot:
    leases = [active(n) for n in range(number)]
    holders = {each.devices[0]: each.id for each in leases}
    queued = [request(number + n) for n in range(number)] if waiting else []
    return snapshot(
        [*leases, *queued],
        devices(number, holders),
        {each.id: idle(idle_for) for each in leases},
        [seen(each, connected=True, in_use=True) for each in leases],
        policy=POLICY,
    )


def all_draining(number: int) -> Snapshot:
    leases = [draining(n) for n in range(number)]
    queued = [request(number + n) for n in range(number)]
    holders = {each.devices[0]: each.id for each in leases}
    drained = [seen(each, drained="done") for each in leases]
    return snapshot([*leases, *queued], devices(number, holders), {}, drained, policy=POLICY)


def pairs(number: int) -> Snapshot:
    """Leases of two GPUs, a node for each two of them, all idle; a quarter as many wait for two."""
    cards_ = tuple(replace(d, node=f"n{at // 4:04}") for at, d in enumerate(cards(2 * number)))
    leases = [
        active(n, count=2, devices=(cards_[2 * n].uuid, cards_[2 * n + 1].uuid))
        for n in range(number)
    ]
    holders = {uuid: each.id for each in leases for uuid in each.devices}
    return snapshot(
        [*leases, *(request(number + n, count=2) for n in range(number // 4))],
        tuple(replace(d, occupied_by=holders[d.uuid]) for d in cards_),
        {each.id: idle(OUTS.idle + 1) for each in leases},
        [seen(each, connected=True) for each in leases],
        policy=POLICY,
    )


def singles(number: int) -> Snapshot:
    """Leases of one GPU, four to a node, all idle; a quarter as many wait for four of one node."""
    cards_ = tuple(replace(d, node=f"n{at // 4:04}") for at, d in enumerate(cards(number)))
    leases = [active(n, devices=(cards_[n].uuid,)) for n in range(number)]
    return snapshot(
        [*leases, *(request(number + n, count=4) for n in range(number // 4))],
        tuple(replace(d, occupied_by=leases[at].id) for at, d in enumerate(cards_)),
        {each.id: idle(OUTS.idle + 1) for each in leases},
        [seen(each, connected=True) for each in leases],
        policy=POLICY,
    )


SHARED = replace(
    POLICY,
    leases_per_user=99,
    projects=shared(*(project(f"p{n}", 2) for n in range(6)), strength=1.0).projects,
)


def in_projects(number: int) -> Snapshot:
    """Two projects borrow from four others, who wait for their own."""
    leases = [
        active(n, user=f"a{n}", project=f"p{n % 2}", server=f"a{n}", pool="cards")
        for n in range(number)
    ]
    queued = [
        request(number + n, project=f"p{n % 6}", server=f"r{n}", user=f"u{n // 2}")
        for n in range(number)
    ]
    holders = {each.devices[0]: each.id for each in leases}
    return snapshot(
        [*leases, *queued],
        devices(number, holders),
        {each.id: idle(5) for each in leases},
        [seen(each, connected=True, in_use=True) for each in leases],
        policy=SHARED,
    )


def long_queue(number: int) -> Snapshot:
    """A site that stays as it is, and more and more who wait for it."""
    site = in_projects(12)
    queued = [request(99 + n, project=f"p{n % 6}", server=f"w{n}") for n in range(number)]
    return replace(site, leases=(*site.leases, *queued))


WORLDS: dict[str, Callable[[int], Snapshot]] = {
    "all queued": all_queued,
    "all starting, elsewhere": all_starting,
    "all used": all_active,
    "all idle": lambda number: all_active(number, idle_for=OUTS.idle + 1),
    "full, and as many wait": lambda number: all_active(number, waiting=True),
    "full, idle for those who wait": lambda n: all_active(n, idle_for=OUTS.idle + 1, waiting=True),
    "all draining, and as many wait": all_draining,
    "projects borrow, and others wait for their own": in_projects,
    "pairs on many nodes, and others wait for pairs": pairs,
    "full nodes, and others wait for whole ones": singles,
}


def steps(work: Callable[[Snapshot], object], view: Snapshot) -> int:
    """Return how many lines were run and calls made."""
    counted = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        counted += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work(view)
    finally:
        sys.settrace(before)
    return counted


@pytest.mark.parametrize("work", [plan, forecast.forecasts])
@pytest.mark.parametrize("world", WORLDS)
def test_four_times_as_much_costs_about_four_times_as_much(
    world: str, work: Callable[[Snapshot], object]
) -> None:
    small, large = (steps(work, WORLDS[world](number)) for number in (30, 120))
    assert large <= 6 * small, f"{small} steps for 30, {large} for 120"


def test_ten_times_the_queue_costs_about_ten_times_as_much() -> None:
    short, long = (steps(plan, long_queue(number)) for number in (100, 1000))
    assert long <= 11 * short, f"{short} steps for 100, {long} for 1,000"


@pytest.mark.parametrize("number", [60, 4000])
def test_an_ask_does_not_look_at_each_device_again(number: int) -> None:
    def ask(view: Snapshot) -> None:
        answer(Ask("ann", "lab"), replace(view, leases=()), "new", (view.now, 1))

    site = snapshot([], devices(number), policy=POLICY)
    ask(site)
    assert steps(ask, site) < 500


def test_plans_and_all_others_know_their_own_devices_at_once() -> None:
    asked: list[int] = []

    @once_for_devices
    def total(devices: Sequence[Device]) -> int:
        asked.append(len(devices))
        return len(devices)

    known, marked = (snapshot([], devices(number), policy=POLICY) for number in (3, 4))
    for _ in range(3):
        assert [total(known), total(replace(marked)), total(replace(known))] == [3, 4, 3]
    assert asked == [3, 4]


def test_what_is_written_of_a_decision_does_not_grow_with_the_projects() -> None:
    def written(projects: int) -> int:
        names = [f"p{n}" for n in range(projects)]
        known = shared(*(project(name) for name in names), strength=1.0)
        leases = [request(n, project=names[n % projects], user=f"u{n}") for n in range(200)]
        use = {(name, "ann", "cards"): 3600.0 for name in names}
        view = snapshot(leases, (), policy=replace(POLICY, projects=known.projects), use=use)
        actions = plan(view)
        decisions(view, actions[:1])  # what is worked out once of a snapshot
        return steps(lambda view: decisions(view, actions), view)

    few, many = written(10), written(200)
    assert many <= 1.5 * few, f"{few} steps among 10 projects, {many} among 200"
