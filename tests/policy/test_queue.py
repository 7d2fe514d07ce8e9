"""Who waits, and runs of whole notebooks: last in line, first to leave, and not for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.policy import document, queue
from gpulease.policy.lifecycle import apply
from gpulease.policy.model import Drain, EndReason, Lease, LeaseState, Snapshot, Start, Warn
from gpulease.policy.planner import plan
from gpulease.policy.projects import Projects
from tests.helpers import draws
from tests.policy.build import NOW, OUTS, active, at, busy, cards, idle, policy, request, snapshot
from tests.policy.fairness.build import asks, holds, project, shared

PEOPLE = st.sampled_from(["ann", "bob"])
MADE = st.builds(
    lambda make, user, server: (make, {"user": user, "server": server}),
    st.sampled_from([active, request]),
    PEOPLE,
    st.sampled_from(["", "lab"]),
)


@given(st.lists(MADE, max_size=8), st.lists(st.tuples(PEOPLE, st.integers(-5, 5)), max_size=4))
def test_a_snapshot_with_a_new_request_is_as_one_made_of_all(there, asked) -> None:
    leases = [make(number, **changed) for number, (make, changed) in enumerate(there)]
    known = snapshot(leases)
    for number, (user, late) in enumerate(asked, len(leases)):
        new = replace(request(number, user=user), ticket=(at(late), number))
        known = queue.with_new(known, new)
        assert told(known) == told(replace(known))


def told(known: Snapshot) -> tuple[tuple[Lease, ...], dict, dict]:
    theirs = {user: tuple(there) for user, there in queue.by_person(known).items()}
    return queue.waiting(known), theirs, dict(queue.waiting_of(known))


HOUR = 3600.0
WAITS = replace(policy(), batch_wait=2 * HOUR, batch_cell=600.0)


def steps(leases, kind, devices=1, evidence=None, now=NOW, document=WAITS):
    found = snapshot(leases, devices=cards(devices), evidence=evidence or {}, policy=document)
    return {a.lease_id: a for a in plan(replace(found, now=now)) if isinstance(a, kind)}


def test_a_run_comes_after_every_person_until_it_has_waited_for_so_long():
    run, person = request(1, batch=True), request(2)
    assert list(steps([run, person], Start)) == ["r2"]
    late = at(1 - 3600 + 2 * HOUR)
    assert list(steps([run, person], Start, now=late)) == ["r1"]


def test_a_run_takes_what_is_left():
    leases = [request(1, batch=True), request(2)]
    assert sorted(steps(leases, Start, devices=2)) == ["r1", "r2"]


def test_nothing_is_taken_back_for_a_run_that_stands_back():
    held = active(1, "GPU-0")
    seen = {"r1": idle(OUTS.idle_under_pressure + 1)}
    assert not steps([held, request(2, batch=True)], Warn, evidence=seen)
    assert list(steps([held, request(2)], Warn, evidence=seen)) == ["r1"]


def test_a_runs_busy_lease_gives_way_to_a_person_and_to_nobody_else():
    held = active(1, "GPU-0", batch=True)
    warns = steps([held, request(2)], Warn, evidence={"r1": busy()})
    assert (warns["r1"].reason, warns["r1"].nominated_for) == ("preempted", "r2")
    old = request(2, batch=True, ticket=(at(-3 * HOUR), 2))
    assert not steps([held, old], Warn, evidence={"r1": busy()})
    assert not steps([active(1, "GPU-0"), request(2)], Warn, evidence={"r1": busy()})


def big(number, first, devices, least, **changed):
    held = tuple(f"GPU-{first + n}" for n in range(devices))
    return active(
        number,
        devices=held,
        count=devices,
        min_count=least,
        batch=True,
        hard_end=at(9999),
        **changed,
    )


@pytest.mark.parametrize(
    ("sizes", "least", "wanted", "left"),
    [
        ([4], 1, 1, [3]),
        ([4], 1, 3, [1]),
        ([4], 1, 4, [0]),  # it cannot live with none
        ([4], 3, 2, [0]),
        ([4], 0, 1, [0]),  # it asked for four, and no fewer
        ([2, 2], 1, 2, [1, 1]),  # both go on
        ([2, 2], 1, 3, [0, 1]),  # the second gives no more than is lacking
        ([2, 2], 1, 4, [0, 0]),
        ([1, 3], 1, 1, [1, 2]),  # whoever can become smaller does, before another one leaves
    ],
)
def test_a_run_gives_a_person_no_more_than_is_lacking_where_it_can_live_with_fewer(
    sizes, least, wanted, left
):
    runs = [big(n, sum(sizes[:n]), size, least) for n, size in enumerate(sizes)]
    person = request(9, count=wanted)
    many = sum(sizes)
    terms = replace(WAITS, classes=tuple(replace(c, max_count=8) for c in WAITS.classes))
    seen = {run.id: busy() for run in runs}
    warns = steps([*runs, person], Warn, many, seen, document=terms)
    now = {x.id: len(x.devices) for x in runs}
    for found in warns.values():
        assert found.reason == ("preempted_in_part" if found.becomes else "preempted")
        now[found.lease_id] = len(found.becomes.devices) if found.becomes else 0
    assert list(now.values()) == left


def test_a_run_that_asked_for_steps_of_a_card_becomes_one():
    """Parts of one card: it keeps running with a step that its class has."""
    run = big(0, 0, 7, 4, steps=(4,))
    warns = steps([run, request(9, count=2)], Warn, 7, {"r0": busy()})
    assert len(warns["r0"].becomes.devices) == 4


def test_a_run_keeps_its_gpu_for_its_minimum_runtime_and_while_another_is_free():
    young = active(1, "GPU-0", batch=True, active_since=at(-OUTS.minimum_runtime + 1))
    assert not steps([young, request(2)], Warn, evidence={"r1": busy()})
    held = active(1, "GPU-0", batch=True)
    assert not steps([held, request(2)], Warn, devices=2, evidence={"r1": busy()})


def test_of_idle_leases_those_of_runs_go_first():
    person, run = active(1, "GPU-0"), active(2, "GPU-1", batch=True)
    seen = {"r1": idle(2000), "r2": idle(1000)}
    outs = replace(OUTS, idle=3000, quiet=3000)
    warns = steps(
        [person, run, request(3)], Warn, devices=2, evidence=seen,
        document=replace(policy(outs), batch_wait=HOUR),
    )  # fmt: skip
    assert list(warns) == ["r2"]


@pytest.mark.parametrize(
    ("cells", "after", "drains"), [(1, 1, False), (0, 1, True), (1, 601, True)]
)
def test_a_running_cell_is_let_finish_within_a_bound(cells, after, drains):
    held = active(1, "GPU-0", batch=True)
    (warn,) = steps([held, request(2)], Warn, evidence={"r1": busy()}).values()
    left = apply(held, warn, NOW, OUTS)
    now = warn.until + timedelta(seconds=after)
    seen = {"r1": replace(busy(), cells=cells)}
    found = steps([left, request(2)], Drain, evidence=seen, now=now)
    assert bool(found) is drains


def test_what_a_run_keeps_counts_as_held_by_its_project():
    """Else its project would seem to hold nothing, and take what others have for its next."""
    found = shared(project("phys", 3), project("bio", 1))
    run = holds(
        0, "phys", devices=tuple(f"GPU-{n}" for n in range(4)), count=4, min_count=1, batch=True
    )
    theirs = [holds(n, "bio", devices=(f"GPU-{n}",)) for n in (4, 5)]
    waiting = [asks(8, "bio"), asks(9, "phys")]
    warns = steps(
        [run, *theirs, *waiting], Warn, devices=6, document=found,
        evidence={lease.id: busy() for lease in (run, *theirs)},
    )  # fmt: skip
    assert {name: each.nominated_for for name, each in warns.items()} == {"r0": "r8"}
    assert warns["r0"].becomes.count == 3


@settings(max_examples=draws(5), deadline=None)
@given(
    st.lists(st.integers(15, 600), min_size=1, max_size=40),
    st.integers(1, 3),
    st.lists(st.integers(60, 1800), min_size=1, max_size=6),
    st.lists(st.sampled_from(["phys", "bio"]), min_size=1, max_size=6) | st.none(),
)
def test_a_run_waits_no_longer_than_its_bound_however_fast_people_come(
    gaps, devices, lengths, projects
):
    """Everybody comes after the run, for ever; each of their leases has one of some lengths.

    The bound: ``batch_wait``, then the longest lease that runs by then.  With projects the run's
    own is guaranteed one device, and both projects ask for more than there is.
    """
    outs = replace(OUTS, minimum_runtime=0)
    terms = replace(policy(outs, leases_per_user=1000, queue_max=10**6), batch_wait=HOUR)
    if projects is not None:
        both = (project("phys", 1), project("bio", devices - 1))
        terms = replace(terms, projects=Projects(both, strength=0.0))
    whose = projects or [None]
    run = request(0, batch=True, ticket=(NOW, 0), created=NOW, project=projects and "phys")
    waiting, ends, served = [run], {}, None
    now, number, next_person = 0.0, 0, 0.0
    bound = HOUR + max(lengths)
    while served is None:
        while next_person <= now:
            number += 1
            person = request(
                number, ticket=(at(next_person), number), created=at(next_person),
                project=whose[number % len(whose)],
            )  # fmt: skip
            waiting.append(person)
            next_person += gaps[number % len(gaps)]
        held = [
            active(
                n, f"GPU-{device}", ticket=lease.ticket, hard_end=at(10**7), project=lease.project
            )
            for device, (n, lease, _) in ends.items()
        ]
        found = snapshot(
            [*held, *waiting], devices=cards(devices), policy=terms,
            evidence={lease.id: busy() for lease in held},
        )  # fmt: skip
        for action in plan(replace(found, now=at(now))):
            if isinstance(action, Start):
                lease = next(each for each in waiting if each.id == action.lease_id)
                waiting.remove(lease)
                if lease is run:
                    served = now
                n = int(lease.id[1:])
                device = int(action.devices[0].removeprefix("GPU-"))
                ends[device] = (n, lease, now + lengths[n % len(lengths)])
        if served is None:
            if ends and len(ends) == devices:
                over = min(end for *_, end in ends.values())
                now = max(over, now + 1)
                ends = {d: each for d, each in ends.items() if each[2] > now}
            else:
                now = max(now + 1, next_person)
            assert now <= bound + 1, "others are still served before it"
    assert served <= bound + 1


def test_a_running_cell_is_finished_before_the_hard_end_or_not_at_all():
    leaves = active(
        1, "GPU-0", batch=True, state=LeaseState.WARNED, reason="preempted",
        end_reason_wanted=EndReason.PREEMPTED, warned_until=at(-60), hard_end=at(60),
        nominated_for="r2",
    )  # fmt: skip
    runs = {"evidence": {"r1": busy()}}
    assert not steps([leaves, request(2)], Drain, **runs)
    assert list(steps([leaves, request(2)], Drain, now=at(60), **runs)) == ["r1"]


def test_the_document_says_how_long():
    text = document.dump(replace(WAITS, batch_wait=90.0))
    assert "batch_wait: 90s" in text or "batch_wait: 1m30s" in text
    assert document.parse(text).batch_wait == 90.0
    assert document.parse(text).batch_cell == 600.0
