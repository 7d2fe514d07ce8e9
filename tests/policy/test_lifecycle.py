"""The table of transitions, what each step leaves in the record, and leases that are adopted."""

from dataclasses import replace

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy import lifecycle
from gpulease.policy.lifecycle import table
from gpulease.policy.model import (
    Activate,
    Alert,
    Bind,
    Clear,
    Drain,
    End,
    EndReason,
    LeaseState,
    Nominate,
    Observed,
    Progress,
    Requeue,
    Resume,
    SetBack,
    Start,
    Wait,
    Warn,
)
from tests.policy.build import NOW, OUTS, active, at, draining, request, starting, warned

STATES = {
    LeaseState.QUEUED: request(1),
    LeaseState.STARTING: starting(1),
    LeaseState.ACTIVE: active(1),
    LeaseState.WARNED: warned(1),
    LeaseState.DRAINING: draining(1),
    LeaseState.ENDED: lifecycle.end(active(1), EndReason.IDLE, NOW),
}
ACTIONS = {
    "start": Start("r1", "starting", ("GPU-0",)),
    "activate": Activate("r1", "connected"),
    "requeue": Requeue("r1", "supervisor_failed", at(5)),
    "warn": Warn("r1", "idle", at(60), EndReason.IDLE),
    "clear": Clear("r1", "used"),
    "drain": Drain("r1", "idle", at(60), EndReason.IDLE, park=False),
    "resume": Resume("r1", "undrainable", undrainable=True),
    "end": End("r1", "done", EndReason.IDLE),
    "wait": Wait("r1", "no_capacity"),
    "nominate": Nominate("r1", "idle", "r2"),
    "progress": Progress("r1", "pulling"),
    "bind": Bind("r1", "", ("GPU-9",)),
    "set_back": SetBack("r1", "clock_set", at(9), 5.0),
}
POSSIBLE = {
    LeaseState.QUEUED: {"start", "end", "wait"},
    LeaseState.STARTING: {"activate", "requeue", "drain", "end", "progress", "bind", "set_back"},
    LeaseState.ACTIVE: {"warn", "drain", "end", "bind", "set_back"},
    LeaseState.WARNED: {"clear", "resume", "drain", "end", "nominate", "bind", "set_back"},
    LeaseState.DRAINING: {"clear", "resume", "drain", "end", "nominate", "bind", "set_back"},
    LeaseState.ENDED: set(),
}


@pytest.mark.parametrize("state", list(LeaseState))
@pytest.mark.parametrize("name", list(ACTIONS))
def test_each_action_in_each_state(state, name):
    lease = STATES[state]
    if name in POSSIBLE[state]:
        after = lifecycle.apply(lease, ACTIONS[name], NOW, OUTS)
        assert after.version == lease.version + 1
        assert lifecycle.allowed(lease.state, after.state)
    else:
        with pytest.raises(GPULeaseError) as refused:
            lifecycle.apply(lease, ACTIONS[name], NOW, OUTS)
        assert refused.value.reason == "not_possible_now"
        assert refused.value.status == 409


def test_nothing_follows_ended():
    assert not [row for row in lifecycle.TRANSITIONS if row.source is LeaseState.ENDED]


def test_every_state_can_be_reached_and_left():
    reached = {LeaseState.QUEUED}
    for _ in LeaseState:
        reached |= {row.target for row in lifecycle.TRANSITIONS if row.source in reached}
    assert reached == set(LeaseState)


def test_a_wrong_reason_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="has no reason"):
        lifecycle.apply(active(1), Warn("r1", "bored", at(1), EndReason.IDLE), NOW, OUTS)


def test_an_alert_changes_no_lease():
    with pytest.raises(TypeError):
        lifecycle.apply(active(1), Alert("", "mass_idle", "x"), NOW, OUTS)


def test_start_and_activate():
    started = lifecycle.apply(request(1, not_before=at(-1)), ACTIONS["start"], NOW, OUTS)
    assert (started.attempt, started.devices, started.not_before) == (1, ("GPU-0",), None)
    connecting = lifecycle.apply(started, Progress("r1", "connecting", ("GPU-3",)), at(1), OUTS)
    assert (connecting.reason, connecting.state_since) == ("connecting", NOW)
    assert (connecting.stage_since, connecting.devices) == (at(1), ("GPU-3",))
    ready = lifecycle.apply(connecting, ACTIONS["activate"], at(2), OUTS)
    assert ready.active_since == at(2)
    assert ready.hard_end == at(2 + OUTS.hard_length)


def test_a_wanted_length_shortens_and_never_lengthens():
    for wanted, length in ((60.0, 60.0), (10 * OUTS.hard_length, OUTS.hard_length)):
        lease = starting(1, wanted=wanted)
        ready = lifecycle.apply(lease, ACTIONS["activate"], NOW, OUTS)
        assert ready.hard_end == at(length)


def test_requeue_keeps_the_ticket_and_counts_own_failures_only():
    lease = starting(1)
    after = lifecycle.apply(lease, ACTIONS["requeue"], NOW, OUTS)
    assert (after.ticket, after.devices, after.failures) == (lease.ticket, (), 1)
    taken = Requeue("r1", "capacity_taken", at(5), failure=False)
    assert lifecycle.apply(lease, taken, NOW, OUTS).failures == 0


def test_keep_clears_the_warning_and_counts():
    kept = lifecycle.keep(warned(1, nominated_for="r2"), NOW, OUTS)
    assert (kept.state, kept.keeps, kept.kept_until) == (LeaseState.ACTIVE, 1, at(OUTS.keep))
    assert (kept.warned_until, kept.end_reason_wanted, kept.nominated_for) == (None, None, None)


@pytest.mark.parametrize("reason", [EndReason.PREEMPTED, EndReason.EXPIRED, EndReason.WINDOW_OVER])
def test_keep_is_refused_where_it_would_break_a_promise(reason):
    with pytest.raises(GPULeaseError) as refused:
        lifecycle.keep(warned(1, end_reason_wanted=reason), NOW, OUTS)
    assert refused.value.reason == "keep_not_possible"


def test_keep_is_refused_when_used_up():
    with pytest.raises(GPULeaseError) as refused:
        lifecycle.keep(warned(1, keeps=OUTS.keeps), NOW, OUTS)
    assert refused.value.numbers == {"keeps": 3, "max": 3}


@pytest.mark.parametrize("lease", [request(1), starting(1), draining(1), STATES[LeaseState.ENDED]],
                         ids=lambda lease: lease.state.value)  # fmt: skip
def test_only_a_running_lease_is_kept(lease):
    with pytest.raises(GPULeaseError, match="cannot be kept"):
        lifecycle.keep(lease, NOW, OUTS)


def test_giving_back():
    assert lifecycle.give_back(request(1), NOW, OUTS).end_reason is EndReason.WITHDRAWN
    assert lifecycle.give_back(starting(1), NOW, OUTS).end_reason is EndReason.RETURNED
    for lease in (active(1), warned(1)):
        leaving = lifecycle.give_back(lease, NOW, OUTS)
        assert leaving.state is LeaseState.DRAINING
        assert leaving.end_reason_wanted is EndReason.RETURNED
        assert not leaving.park, "nothing is lost unless the holder says so"
        assert lifecycle.give_back(lease, NOW, OUTS, force=True).park
        assert leaving.drain_until == at(OUTS.drain_max + OUTS.interrupt_grace)


@pytest.mark.parametrize("lease", [draining(1), STATES[LeaseState.ENDED]])
def test_giving_back_twice_changes_nothing(lease):
    assert lifecycle.give_back(lease, NOW, OUTS) is lease


def test_an_admins_note_reaches_the_student():
    leaving = lifecycle.force_end(active(1), NOW, OUTS, "maintenance at three")
    assert (leaving.state, leaving.end_note) == (LeaseState.DRAINING, "maintenance at three")
    ended = lifecycle.apply(leaving, End("r1", "done", EndReason.FORCED), at(1), OUTS)
    assert (ended.end_reason, ended.end_note) == (EndReason.FORCED, "maintenance at three")
    assert lifecycle.force_end(request(1), NOW, OUTS, "no").end_reason is EndReason.FORCED


def test_forcing_a_draining_lease_keeps_its_bound():
    lease = draining(1, left=7)
    assert lifecycle.force_end(lease, NOW, OUTS, "now").drain_until == at(7)


@pytest.mark.parametrize("state", [s for s in LeaseState if s is not LeaseState.ENDED])
def test_a_server_that_goes_ends_its_lease_in_any_state(state):
    ended = lifecycle.server_gone(STATES[state], NOW)
    assert (ended.state, ended.end_reason) == (LeaseState.ENDED, EndReason.SERVER_GONE)
    assert lifecycle.server_gone(ended, at(1)) is ended


def test_an_ended_lease_keeps_devices_and_nominee_as_history():
    ended = lifecycle.end(draining(1, nominated_for="r9"), EndReason.IDLE, NOW)
    assert (ended.devices, ended.nominated_for, ended.ended) == (("GPU-1",), "r9", NOW)


def test_resume_remembers_that_it_could_not_be_drained():
    back = lifecycle.apply(draining(1), ACTIONS["resume"], NOW, OUTS)
    assert (back.undrainable, back.idle_from, back.drain_until) == (True, NOW, None)


def test_asking_again_begins_a_new_idle_stretch():
    back = lifecycle.asked_again(draining(1, park=True), NOW)
    assert (back.state, back.idle_from, back.park) == (LeaseState.ACTIVE, NOW, False)
    with pytest.raises(GPULeaseError):
        lifecycle.asked_again(request(1), NOW)


def test_claiming_is_remembered_once():
    lease = active(1, claimed=None)
    claimed = lifecycle.claim(lease, NOW)
    assert claimed.claimed == NOW
    assert lifecycle.claim(claimed, at(9)) is claimed


def test_server_ready_changes_only_when_it_changes():
    lease = request(1, server_ready=False)
    ready = lifecycle.server_ready(lease, ready=True)
    assert ready.server_ready
    assert lifecycle.server_ready(ready, ready=True) is ready


def test_a_class_taken_out_of_the_policy_leaves_the_documents_time_outs():
    from tests.policy.build import policy

    other = replace(active(1), gpu_class="gone")
    assert lifecycle.time_outs_of(policy(), other) == policy().time_outs


RECORD = active(1, "n0/0", attempt=3, hard_end=at(20_000))


def seen(**changed):
    base = Observed("r1", 3, connected=True, devices=("n0/1",), record=RECORD)
    return replace(base, **changed)


def test_it_goes_on_for_an_hour_where_it_runs():
    lease = table.adopted(seen(), None, NOW)
    assert lease is not None
    assert (lease.state, lease.attempt, lease.devices) == (LeaseState.ACTIVE, 3, ("n0/1",))
    assert lease.hard_end == lease.idle_from == at(table.PEACE)
    assert (lease.user, lease.active_since) == (RECORD.user, RECORD.active_since)


def test_its_own_end_stays_when_that_is_sooner():
    lease = table.adopted(seen(record=replace(RECORD, hard_end=at(60))), None, NOW)
    assert lease is not None
    assert lease.hard_end == at(60)


@pytest.mark.parametrize("made", [request, starting, active, draining])
def test_a_later_attempt_than_the_store_knows_of_is_adopted(made):
    known = made(1, attempt=2, groups=("g",), version=7, wanted=60.0)
    lease = table.adopted(seen(), known, NOW)
    assert lease is not None
    assert (lease.state, lease.attempt, lease.version) == (LeaseState.ACTIVE, 3, 8)
    assert (lease.groups, lease.drain_until, lease.end_reason_wanted) == (("g",), None, None)


@pytest.mark.parametrize("attempt", [3, 4])
def test_what_the_store_knows_is_not_adopted(attempt):
    assert table.adopted(seen(), active(1, attempt=attempt), NOW) is None


def test_an_end_is_never_taken_back():
    over = lifecycle.end(active(1, attempt=2), EndReason.RETURNED, NOW)
    assert table.adopted(seen(), over, NOW) is None


def test_a_pod_that_says_nothing_or_is_nowhere_is_not_adopted():
    assert table.adopted(seen(record=None), None, NOW) is None
    assert table.adopted(seen(devices=()), None, NOW) is None


def test_an_admin_hears_of_it():
    assert "r1" in table.adoption_alert(RECORD).sentence
