"""Idle leases leave: warned, kept, drained, parked; for whom, and when not."""

from dataclasses import replace

import pytest

from gpulease.policy import lifecycle
from gpulease.policy.idleness import warned_at
from gpulease.policy.model import (
    Alert,
    Clear,
    Drain,
    End,
    EndReason,
    Evidence,
    LeaseState,
    Nominate,
    Resume,
    Start,
    TimeOuts,
    Verdict,
    Wait,
    Warn,
)
from gpulease.policy.planner import plan
from tests.policy.build import (
    NOW,
    OUTS,
    active,
    at,
    busy,
    cards,
    draining,
    idle,
    policy,
    quiet,
    request,
    seen,
    snapshot,
    turned_idle,
    unknown,
    warned,
)

WAITING = request(9, reason="no_capacity")
IDLE_WARN = Warn("r0", "idle", at(60), EndReason.IDLE)


@pytest.mark.parametrize(
    ("evidence", "action"),
    [
        (busy(), []),
        (idle(299), []),
        (idle(300), [IDLE_WARN]),
        (quiet(899), []),
        (quiet(900), [Warn("r0", "quiet", at(60), EndReason.IDLE)]),
        (idle(10, quiet_for=900), [Warn("r0", "quiet", at(60), EndReason.IDLE)]),
        (unknown(299), []),
        (unknown(10, quiet_for=5000), []),
        (None, []),
    ],
)
def test_when_an_active_lease_is_warned(evidence, action):
    assert plan(snapshot([active(0)], evidence={"r0": evidence} if evidence else {})) == action


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (idle(119), None),
        (idle(120), "idle"),
        (quiet(899), None),
        (quiet(900), "quiet"),
        (busy(), None),
        (unknown(OUTS.unknown_hold + OUTS.quiet - 1), None),
        (unknown(OUTS.unknown_hold + OUTS.quiet), "no_data"),
        (unknown(OUTS.unknown_hold + 100, quiet_for=OUTS.quiet - 100), "no_data"),
        (unknown(OUTS.unknown_hold - 1, quiet_for=OUTS.quiet), None),
    ],
)
def test_when_an_active_lease_is_warned_for_somebody(evidence, reason):
    actions = plan(snapshot([active(0), WAITING], evidence={"r0": evidence}))
    warnings = [a for a in actions if isinstance(a, Warn)]
    expected = [Warn("r0", reason, at(60), EndReason.IDLE, "r9")] if reason else []
    assert warnings == expected


def test_silence_raises_an_alert_and_takes_nothing_where_nobody_waits():
    actions = plan(snapshot([active(0)], evidence={"r0": unknown(5000)}))
    assert [type(a) for a in actions] == [Alert]
    assert (actions[0].lease_id, actions[0].reason) == ("r0", "no_data")
    assert "of lease r0 of user0 for 1 h 23 min 20 s" in actions[0].sentence


def test_a_kept_lease_stays_until_then():
    evidence = {"r0": idle(5000)}
    assert plan(snapshot([active(0, kept_until=at(1))], evidence=evidence)) == []
    assert plan(snapshot([active(0, kept_until=NOW)], evidence=evidence)) == [IDLE_WARN]


def test_a_changed_time_out_counts_at_once_from_the_beginning_of_the_stretch():
    short = policy(TimeOuts(idle=100))
    assert plan(snapshot([active(0)], evidence={"r0": idle(150)}, policy=short))
    long = policy(TimeOuts(idle=1000))
    evidence = {"r0": turned_idle(350)}
    actions = plan(snapshot([warned(0)], evidence=evidence, policy=long))
    assert actions == [Clear("r0", "policy_changed")]


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (busy(), "used"),
        (quiet(50), "used"),
        (unknown(20), "no_data"),
        (None, "no_data"),
        (idle(20), "no_data"),  # counted anew since the service was restarted
    ],
)
def test_a_warning_is_cleared(evidence, reason):
    view = snapshot([warned(0)], evidence={"r0": evidence} if evidence else {})
    assert plan(view) == [Clear("r0", reason)]


@pytest.mark.parametrize("left", [30, 0])
def test_a_short_gap_neither_clears_nor_drains(left):
    assert plan(snapshot([warned(0, left=left)], evidence={"r0": unknown(9)})) == []


def test_a_warned_lease_gets_its_full_warning_then_drains():
    evidence = {"r0": idle(5000)}
    assert plan(snapshot([warned(0, left=0.1)], evidence=evidence)) == []
    drain = Drain("r0", "idle", at(OUTS.drain_max), EndReason.IDLE, park=False)
    assert plan(snapshot([warned(0, left=0)], evidence=evidence)) == [drain]


def test_a_running_cell_gets_its_interrupt_grace():
    view = snapshot([warned(0, left=0, reason="quiet")], evidence={"r0": quiet(5000)})
    (drain,) = plan(view)
    assert drain.until == at(OUTS.drain_max + OUTS.interrupt_grace)


def test_under_pressure_what_cannot_go_home_is_parked_at_once():
    lease = warned(0, left=0, nominated_for="r9")
    (drain,) = plan(snapshot([lease, WAITING], evidence={"r0": idle(200)}))
    assert drain == Drain("r0", "idle", at(60), EndReason.IDLE, park=True, nominated_for="r9")


def test_a_warning_under_pressure_is_cleared_when_nobody_waits_any_more():
    lease = warned(0, nominated_for="r9")
    view = snapshot([lease], evidence={"r0": turned_idle(200)})
    assert plan(view) == [Clear("r0", "nobody_waits")]


def test_a_warning_that_stands_by_itself_loses_its_nominee():
    lease = warned(0, nominated_for="r9")
    assert plan(snapshot([lease], evidence={"r0": idle(400)})) == [Nominate("r0", "idle", None)]


def test_somebody_who_comes_later_is_nominated_for_what_leaves_anyway():
    actions = plan(snapshot([draining(0), WAITING], evidence={"r0": idle(400)}))
    assert actions == [Nominate("r0", "idle", "r9")]


def test_one_who_has_what_leaves_for_them_leaves_the_rest_to_those_behind():
    """Both ask for the same, and the first has a lease that leaves in their name already."""
    mine, other = draining(0, nominated_for="r2"), draining(1)
    view = snapshot([mine, other, request(2), request(3)])
    assert [x for x in plan(view) if isinstance(x, Nominate)] == [
        Nominate(other.id, other.reason, "r3")
    ]


def test_one_request_takes_one_lease_and_the_most_idle_one():
    leases = [active(n) for n in range(3)]
    evidence = {"r0": idle(150), "r1": idle(200), "r2": idle(130)}
    actions = plan(snapshot([*leases, WAITING], 3, evidence))
    assert actions == [Warn("r1", "idle", at(60), EndReason.IDLE, "r9")]


def test_the_youngest_of_equally_idle_ones_is_taken():
    leases = [active(0), active(1, active_since=at(-600))]
    evidence = {"r0": idle(150), "r1": idle(150)}
    (action,) = plan(snapshot([*leases, WAITING], 2, evidence))
    assert action.lease_id == "r1"


def test_nothing_more_is_taken_for_a_request_that_is_served_already():
    leases = [warned(0, nominated_for="r9"), active(1)]
    evidence = {"r0": idle(200), "r1": idle(290)}
    assert plan(snapshot([*leases, WAITING], 2, evidence)) == []


def test_a_device_that_comes_free_by_itself_spares_the_idle_ones():
    devices = (*cards(1), *cards(2, occupied_by="ended")[1:])
    view = snapshot([active(0), WAITING], devices, {"r0": idle(200)})
    assert plan(view) == []


def test_a_lease_that_ends_in_this_plan_spares_the_idle_ones():
    leases = [active(0), active(1)]
    view = snapshot(
        [*leases, WAITING], 2, {"r0": idle(200), "r1": busy()}, [seen(leases[1], gone=True)]
    )
    assert plan(view) == [End("r1", "gone", EndReason.FAILED)]


def test_a_large_request_takes_nobodys_lease_unless_enough_can_be_had():
    big = request(9, count=2, reason="no_capacity", ticket=(at(-60), 9))
    leases = [active(0), active(1)]
    one = {"r0": idle(200), "r1": busy()}
    assert plan(snapshot([*leases, big], 2, one)) == []
    both = {"r0": idle(200), "r1": idle(200)}
    assert {a.lease_id for a in plan(snapshot([*leases, big], 2, both))} == {"r0", "r1"}


def test_a_request_that_waits_for_something_else_makes_no_pressure():
    stuck = request(9, server_ready=False, reason="server_starting")
    assert plan(snapshot([active(0), stuck], evidence={"r0": idle(200)})) == []


def test_pressure_of_one_pool_is_not_another_pools():
    other = request(9, gpu_class="slice", reason="quarantined")
    assert plan(snapshot([active(0), other], evidence={"r0": idle(200)})) == []


def test_a_free_gpu_is_granted_before_an_idle_one_is_taken():
    actions = plan(snapshot([active(0), request(9)], 2, {"r0": idle(200)}))
    assert actions == [Start("r9", "starting", ("GPU-1",), pool="cards", count=1)]


# Draining


@pytest.mark.parametrize("word", ["done", "parked"])
def test_a_drained_lease_ends(word):
    lease = draining(0)
    assert plan(snapshot([lease], observed=[seen(lease, drained=word)])) == [
        End("r0", word, EndReason.IDLE)
    ]


@pytest.mark.parametrize("how", ["blocked", "timeout"])
def test_an_undrainable_lease_goes_back_once(how):
    lease = draining(0, left=0 if how == "timeout" else 30)
    word = "blocked" if how == "blocked" else ""
    view = snapshot([lease], observed=[seen(lease, drained=word)])
    assert plan(view) == [Resume("r0", "undrainable", undrainable=True)]


def test_the_second_time_it_parks():
    lease = draining(0, left=30, undrainable=True)
    view = snapshot([lease], observed=[seen(lease, drained="blocked")])
    assert plan(view) == [Drain("r0", "idle", at(30), EndReason.IDLE, park=True)]


def test_under_pressure_it_parks_the_first_time():
    lease = draining(0, left=1, nominated_for="r9")
    view = snapshot([lease, WAITING], observed=[seen(lease, drained="blocked")])
    grace = at(OUTS.interrupt_grace)
    assert plan(view) == [Drain("r0", "idle", grace, EndReason.IDLE, True, "r9")]


@pytest.mark.parametrize("word", ["blocked", ""])
def test_a_lease_that_was_returned_stays_when_something_would_be_lost(word):
    lease = draining(0, left=0, end_reason_wanted=EndReason.RETURNED, reason="returned")
    view = snapshot([lease], observed=[seen(lease, drained=word)])
    assert plan(view) == [Resume("r0", "not_home")]
    idle_since = replace(lease, idle_from=at(-250))
    back = lifecycle.apply(idle_since, Resume("r0", "not_home"), NOW, OUTS)
    assert back.idle_from == at(-250), "wanting to return it is no use of it"


@pytest.mark.parametrize("word", ["blocked", ""])
def test_returning_again_and_again_holds_no_lease_beyond_its_end_or_against_who_waits(word):
    lease = draining(0, left=0, end_reason_wanted=EndReason.RETURNED, reason="returned")
    grace = at(OUTS.interrupt_grace)
    over = replace(lease, hard_end=at(0))
    parks = Drain("r0", "returned", grace, EndReason.RETURNED, park=True)
    assert plan(snapshot([over], observed=[seen(over, drained=word)])) == [parks]
    wanted = replace(lease, nominated_for="r9")
    view = snapshot([wanted, WAITING], observed=[seen(wanted, drained=word)])
    assert plan(view) == [replace(parks, nominated_for="r9")]


@pytest.mark.parametrize("word", ["blocked", ""])
def test_parking_has_an_end(word):
    lease = draining(0, left=0, park=True)
    assert [type(a) for a in plan(snapshot([lease], observed=[seen(lease, drained=word)]))] == [End]


def test_a_drain_for_another_reason_never_goes_back():
    lease = draining(0, left=0, end_reason_wanted=EndReason.EXPIRED, reason="hard_end")
    (action,) = plan(snapshot([lease]))
    assert isinstance(action, Drain)
    assert action.park


def test_an_old_attempts_answer_is_no_answer():
    lease = draining(0, attempt=2)
    assert plan(snapshot([lease], observed=[seen(lease, attempt=1, drained="done")])) == []


def test_after_a_return_the_idle_stretch_begins_anew():
    lease = active(0, idle_from=at(-100), undrainable=True)
    assert plan(snapshot([lease], evidence={"r0": idle(5000)})) == []
    lease = replace(lease, idle_from=at(-300))
    assert plan(snapshot([lease], evidence={"r0": idle(5000)})) == [IDLE_WARN]


def test_a_drain_that_ends_keeps_going_while_the_capacity_is_unknown():
    lease = draining(0)
    view = snapshot([lease], observed=[seen(lease, drained="done")], capacity_known=False)
    assert plan(view) == [End("r0", "done", EndReason.IDLE)]


def test_nothing_is_reclaimed_while_the_capacity_is_unknown():
    view = snapshot(
        [active(0), warned(1, left=0)], 2, {"r0": idle(900), "r1": idle(900)}, capacity_known=False
    )
    assert plan(view) == []


# Hard end and claim


def test_the_hard_end_is_warned_of_and_kept():
    lease = active(0, hard_end=at(60))
    assert plan(snapshot([lease], evidence={"r0": busy()})) == [
        Warn("r0", "hard_end", at(60), EndReason.EXPIRED)
    ]
    late = active(0, hard_end=at(-500))
    assert plan(snapshot([late], evidence={"r0": busy()})) == [
        Warn("r0", "hard_end", at(60), EndReason.EXPIRED)
    ]


def test_a_busy_lease_is_drained_at_its_hard_end():
    hard_end = {"end_reason_wanted": EndReason.EXPIRED, "reason": "hard_end", "hard_end": NOW}
    lease = warned(0, left=0, **hard_end)
    (drain,) = plan(snapshot([lease], evidence={"r0": busy()}))
    assert (drain.park, drain.end_reason) == (True, EndReason.EXPIRED)
    assert drain.until == at(OUTS.drain_max + OUTS.interrupt_grace)


def test_a_lease_that_nobody_claims_is_passed_on():
    lease = active(0, claimed=None, active_since=at(-OUTS.claim))
    view = snapshot([lease], evidence={"r0": idle(60)}, observed=[seen(lease)])
    assert plan(view) == [Warn("r0", "unclaimed", at(60), EndReason.IDLE)]


def test_its_holder_is_told_by_when_to_come_for_it():
    lease = active(0, claimed=None, active_since=NOW)

    def told(lease, observed):
        return warned_at(lease, idle(0), observed, NOW, OUTS)

    assert OUTS.claim < OUTS.idle
    assert told(lease, seen(lease)) == at(OUTS.claim)
    assert told(replace(lease, kept_until=at(900)), seen(lease)) == at(900)
    assert told(lease, seen(lease, in_use=True)) == at(OUTS.warm_up + OUTS.idle)
    assert told(replace(lease, claimed=NOW), seen(lease)) == at(OUTS.warm_up + OUTS.idle)


@pytest.mark.parametrize(
    ("lease", "observed"),
    [
        ({"claimed": None, "active_since": at(1 - OUTS.claim)}, {}),
        ({"claimed": at(-5), "active_since": at(-500)}, {}),
        ({"claimed": None, "active_since": at(-500)}, {"in_use": True}),
        ({"claimed": None, "active_since": at(-500)}, {"connected": False}),
    ],
)
def test_a_lease_that_is_or_may_be_claimed_stays(lease, observed):
    lease = active(0, **lease)
    view = snapshot([lease], evidence={"r0": idle(60)}, observed=[seen(lease, **observed)])
    assert plan(view) == []


# The monitoring itself


def turned(seconds_ago, idle_for=400):
    return Evidence(Verdict.IDLE, at(-seconds_ago), idle_for, idle_for, before=Verdict.BUSY)


def test_many_leases_turning_idle_together_is_a_fault_of_the_monitoring():
    leases = [active(n) for n in range(10)]
    evidence = {f"r{n}": turned(400) if n < 5 else busy() for n in range(10)}
    actions = plan(snapshot(leases, 10, evidence))
    assert [(type(a), a.reason) for a in actions] == [(Alert, "mass_idle")]
    assert actions[0].numbers == {"together": 5, "leases": 10}


def test_a_warned_lease_waits_for_the_monitoring_too():
    leases = [active(n) for n in range(5)] + [warned(5, left=0)]
    evidence = {f"r{n}": turned(400) for n in range(6)}
    assert [type(a) for a in plan(snapshot(leases, 6, evidence))] == [Alert]


@pytest.mark.parametrize(
    ("leases", "evidence"),
    [
        (4, lambda n: turned(400)),  # a class of four stopped at one word
        (10, lambda n: turned(400 + 10 * n)),  # one after the other
        (40, lambda n: turned(400) if n < 8 else busy()),  # no more than a fifth
        (10, lambda n: replace(turned(400), before=Verdict.UNKNOWN)),  # the data came back
        (10, lambda n: turned(OUTS.idle + OUTS.unknown_hold)),  # somebody had time to look
    ],
)
def test_what_is_no_fault(leases, evidence):
    view = snapshot([active(n) for n in range(leases)], leases, {
        f"r{n}": evidence(n) for n in range(leases)
    })  # fmt: skip
    actions = plan(view)
    assert actions
    assert all(isinstance(a, Warn) for a in actions)


def test_admission_goes_on_during_a_fault():
    leases = [active(n) for n in range(5)]
    evidence = {f"r{n}": turned(400) for n in range(5)}
    kinds = [type(a) for a in plan(snapshot([*leases, request(9), request(10)], 6, evidence))]
    assert kinds == [Start, Wait, Alert]


def test_the_state_that_a_plan_leaves_untouched():
    assert plan(snapshot([replace(active(0), state=LeaseState.ENDED)])) == []
