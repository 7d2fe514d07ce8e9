"""The one time left of a lease: each cause, the nearest of several, and no sentinel."""

from dataclasses import replace
from typing import Any

import pytest

from gpulease.policy import lifecycle
from gpulease.policy.explanation.decision import decision
from gpulease.policy.explanation.explain import explain
from gpulease.policy.explanation.forecast import expected_end, what_ends
from gpulease.policy.model import Evidence, Lease, Snapshot, Verdict, Warn
from gpulease.policy.planner import plan
from gpulease.policy.projects import AtZero, Budget
from gpulease.policy.reservations.seats import time_outs_at
from tests.policy.build import (
    OUTS,
    active,
    at,
    busy,
    cards,
    draining,
    idle,
    quiet,
    request,
    seen,
    snapshot,
    starting,
    unknown,
    warned,
)
from tests.policy.fairness.build import holds, project, shared
from tests.policy.reservations.build import window

MEMBER = {"groups": ("cs101",)}
WAITS = request(9, reason="no_capacity", server_ready=True)


def view(
    lease: Lease, evidence: Evidence | None = None, *others: Lease, **changed: Any
) -> Snapshot:
    known = {} if evidence is None else {lease.id: evidence}
    leases, devices = [lease, *others], changed.pop("devices", cards(3))
    return snapshot(leases, devices, known, [seen(lease, in_use=True)], **changed)


def windows(**changed: Any) -> dict[str, Any]:
    return {"windows": (window(**changed),)}


ONE = active(0)
CASES = [
    (request(0), None, {}, None),
    (starting(0), None, {}, None),
    (warned(0, left=30), idle(900), {}, ("released", 30)),
    (draining(0, left=40), idle(900), {}, ("drained", 40)),
    (ONE, busy(), {}, ("hard_limit", 7200)),
    (ONE, unknown(10), {}, ("hard_limit", 7200)),
    (ONE, idle(60), {}, ("idle_warning", OUTS.idle - 60)),
    (ONE, quiet(60), {}, ("idle_warning", OUTS.quiet - 60)),
    (replace(ONE, hard_end=at(100)), idle(60), {}, ("hard_limit", 100)),
    (replace(ONE, hard_end=None), busy(), {}, None),
    (replace(ONE, kept_until=at(1500)), idle(60), {}, ("idle_warning", 1500)),
    # an exam: nobody is reclaimed, and everybody leaves at its end, some later
    (active(0, **MEMBER), idle(900), windows(start=-60, length=2400, exam=True), ("exam", 2340)),
    (
        active(0, **MEMBER),
        busy(),
        windows(start=-60, length=2400, exam=True, extra_time=(("user0", 600.0),)),
        ("exam", 2940),
    ),
    (active(0, **MEMBER), busy(), windows(start=-60, length=2400), ("seat", 2340)),
    (active(0, **MEMBER), idle(30), windows(start=-60, idle=40.0), ("idle_warning", 10)),
    # a lab of others takes all three cards
    (ONE, busy(), {**windows(start=1800), "devices": cards(3)}, ("reserved", 1680)),
    (ONE, busy(), windows(start=7200), ("hard_limit", 7200)),
]


@pytest.mark.parametrize(("lease", "evidence", "changed", "expected"), CASES)
def test_the_next_thing_that_happens_is_what_is_shown(lease, evidence, changed, expected):
    others = [active(n) for n in (1, 2)] if expected and expected[0] == "reserved" else []
    found = what_ends(view(lease, evidence, *others, **changed), lease)
    shown = (found.cause, found.at) if found is not None else None
    assert shown == (expected and (expected[0], at(expected[1])))


@pytest.mark.parametrize("evidence", [busy(), idle(900)])
def test_who_waits_for_a_gpu_of_an_exam_is_told_its_end(evidence):
    lease = active(0, **MEMBER)
    exam = windows(start=-60, length=2400, exam=True)
    # What leases usually last says nothing here: in an exam nobody is released for being idle.
    found = expected_end(view(lease, evidence, WAITS, typical_length=120.0, **exam), lease)
    assert found is not None
    assert at(2340) <= found <= at(2340 + OUTS.drain_max)


@pytest.mark.parametrize("verdict", [idle(60), idle(9_999), quiet(9_999), busy(), unknown(9_999)])
def test_in_an_exam_nothing_that_a_person_reads_comes_of_a_time_out_that_never_comes(verdict):
    lease = active(0, **MEMBER, claimed=None, active_since=at(-30))
    found = view(lease, replace(verdict, used=False), WAITS, **windows(start=-60, exam=True))
    ending = what_ends(found, lease)
    assert ending is not None
    assert ending.at <= at(7200)
    outs = time_outs_at(found, lease)
    for told in (explain(lease, found.policy, outs=outs).numbers.values(), _said(found, lease)):
        assert not any("inf" in str(each) or "366" in str(each) for each in told)


def _said(found: Snapshot, lease: Lease) -> list[Any]:
    mine = next((each for each in plan(found) if each.lease_id == lease.id), None)
    told = decision(found, lease, mine)
    return [*told.words, *told.numbers.values()]


def test_while_somebody_waits_the_shorter_time_out_is_told_until_another_was_taken():
    def told(idle_for: float, *others: Lease) -> float:
        found = what_ends(view(ONE, idle(idle_for), *others), ONE)
        assert found is not None
        return (found.at - at(0)).total_seconds()

    assert OUTS.idle_under_pressure < OUTS.idle
    assert told(20) == OUTS.idle - 20
    assert told(20, WAITS) == OUTS.idle_under_pressure - 20
    assert told(OUTS.idle_under_pressure + 1, WAITS) == OUTS.idle - OUTS.idle_under_pressure - 1
    for other in ({"gpu_class": "slice"}, {"reason": "user_limit"}, {"server_ready": False}):
        assert told(20, replace(WAITS, **other)) == OUTS.idle - 20


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [
        (Budget(10, at_zero=AtZero.END), 3600 * 8 / 3),
        (Budget(10, 2.0, at_zero=AtZero.END), 3600 * 1 / 2),
        (Budget(10, at_zero=AtZero.BORROW), None),
        (None, None),
    ],
)
def test_a_budget_lasts_as_long_as_all_that_is_charged_to_it_together(budget, seconds):
    policy = shared(project("phys", budget=budget), project("bio"))
    mine = replace(
        holds(0, "phys", user="ann", devices=("GPU-0", "GPU-1")), charged_from=at(0), hard_end=None
    )
    theirs = replace(holds(1, "phys", user="bob", devices=("GPU-2",)), charged_from=at(0))
    spent = {("phys", "ann"): 1.0, ("phys", "bob"): 1.0}
    found = what_ends(view(mine, busy(), theirs, policy=policy, spent=spent), mine)
    assert (found and (found.cause, found.at)) == (seconds and ("budget", at(seconds)))


@pytest.mark.parametrize("since", [0, 60, OUTS.claim - 1, OUTS.claim])
@pytest.mark.parametrize("pressed", [False, True])
@pytest.mark.parametrize("connected", [False, True])
def test_before_its_first_cell_a_lease_is_left_alone_for_the_claim_time(since, pressed, connected):
    """Whatever the idle time-out, whoever waits, and whether a kernel has connected by itself."""
    short = replace(OUTS, idle=20.0, idle_under_pressure=5.0, quiet=20.0, warm_up=0.0)
    lease = active(0, active_since=at(-since), claimed=at(-since) if connected else None)
    policy = replace(snapshot([]).policy, time_outs=short)
    policy = replace(policy, classes=tuple(replace(c, time_outs=short) for c in policy.classes))
    unused = Evidence(Verdict.IDLE, at(-since), idle_for=since, quiet_for=since)
    others = [WAITS] if pressed else []
    found = view(lease, unused, *others, policy=policy, devices=cards(1))
    warns = [each for each in plan(found) if isinstance(each, Warn)]
    assert bool(warns) == (since >= OUTS.claim)
    ending = what_ends(found, lease)
    assert ending is not None
    assert ending.at == max(at(0), at(OUTS.claim - since))
    after = view(lease, replace(unused, used=True), *others, policy=policy, devices=cards(1))
    used = [each for each in plan(after) if isinstance(each, Warn)]
    assert bool(used) == (since > 5), "once a cell has run, the idle time-out counts"


def test_each_keep_adds_its_time_to_the_end_that_there_is():
    lease, outs = active(0, hard_end=at(7200)), replace(OUTS, keep=900.0, keeps=9)
    ends = []
    while lifecycle.keep_refusal(lease, outs) is None:
        ending = what_ends(view(lease, idle(OUTS.idle - 60)), lease)
        assert ending is not None
        lease = lifecycle.keep(lease, at(0), outs, ending.at)
        ends.append(lease.kept_until)
    assert ends == [at(60 + 900 * n) for n in range(1, len(ends) + 1)]
    assert ends[-2] < at(7200) <= ends[-1], "beyond the hard limit nothing is kept"
