"""A lease that becomes another shape: smaller for others, nearer to its wish for its holder."""

from dataclasses import replace
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy import admission, lifecycle, planner
from gpulease.policy.admission import admit
from gpulease.policy.lifecycle import apply
from gpulease.policy.model import (
    Activate,
    Bind,
    Drain,
    End,
    EndReason,
    GPUClass,
    Lease,
    LeaseState,
    Reshape,
    Resume,
    Shape,
    Start,
    Warn,
)
from gpulease.policy.planner import plan
from gpulease.policy.remaining_capacity import holds as kept_for
from tests.helpers import draws
from tests.policy.build import NOW, OUTS, active, at, busy, cards, policy, request, seen, snapshot
from tests.policy.fairness.build import asks, holds, project, shared
from tests.policy.mutants import without_shrinking
from tests.policy.reservations.build import window
from tests.policy.test_state_machine import OUTS as SHORT
from tests.policy.test_state_machine import SHARED, Site
from tests.policy.world import Habit

TWO = shared(project("phys", 1), project("bio", 2))
FOUR = tuple(f"GPU-{n}" for n in range(4))


def big(least: int = 2, **changed):
    """Four cards of phys, which can live with fewer."""
    return holds(0, "phys", devices=FOUR, count=4, min_count=least, hard_end=at(9999), **changed)


def planned(leases, devices=4, **changed):
    view = snapshot(leases, devices, {x.id: busy() for x in leases if x.devices}, **changed)
    return {each.lease_id: each for each in plan(view)}


def through(lease, *, now=NOW, devices=4, others=(), policy=TWO):
    """Return a warned lease once its variables are home."""
    found = planned([lease, *others], devices, policy=policy)[lease.id]
    lease = apply(lease, found, now, OUTS)
    lease = replace(lease, warned_until=NOW)
    lease = apply(lease, planned([lease, *others], devices, policy=policy)[lease.id], now, OUTS)
    assert lease.state is LeaseState.DRAINING
    home = [seen(lease, drained="done")]
    after = planned([lease, *others], devices, policy=policy, observed=home)[lease.id]
    return lease, after


def test_what_is_held_over_quota_becomes_smaller_where_that_is_enough():
    warning = planned([big(), asks(9, "bio")], policy=TWO)["r0"]
    assert isinstance(warning, Warn)
    assert (warning.reason, warning.nominated_for) == ("preempted_in_part", "r9")
    assert warning.becomes == Shape("t4", FOUR[:3])


def test_it_ends_where_even_its_least_is_too_much():
    warning = planned([big(3), asks(9, "bio", count=2)], policy=TWO)["r0"]
    assert isinstance(warning, Warn)
    assert (warning.reason, warning.becomes) == ("preempted", None)


@given(least=st.integers(0, 4), wanted=st.integers(1, 2))
def test_nobody_loses_more_than_is_needed(least, wanted):
    """The property: what is taken is what was asked for, wherever the lease can live with that."""
    warning = planned([big(least), asks(9, "bio", count=wanted)], policy=TWO)["r0"]
    assert isinstance(warning, Warn)
    can = 0 < least <= 4 - wanted
    assert (warning.becomes.count if warning.becomes else 0) == (4 - wanted if can else 0)


def test_one_lease_gives_to_one_request_at_a_time():
    found = planned([big(1), asks(8, "bio"), asks(9, "bio")], policy=TWO)
    assert found["r0"].becomes == Shape("t4", FOUR[:3])
    assert found["r0"].nominated_for == "r8"


def test_what_it_keeps_counts_as_held_and_what_it_gives_does_not():
    lease = apply(big(), planned([big(), asks(9, "bio")], policy=TWO)["r0"], NOW, OUTS)
    # phys holds three of its share then: nothing more is taken for those who have no right to it
    again = planned([lease, asks(9, "bio"), asks(10, "phys")], policy=TWO)
    assert "r0" not in again


def test_it_goes_on_with_the_rest_and_its_story():
    lease, step = through(big(), others=[asks(9, "bio")])
    assert isinstance(step, Reshape)
    after = apply(lease, step, NOW, OUTS)
    assert (after.state, after.reason) == (LeaseState.QUEUED, "reshaped")
    assert (after.id, after.ticket, after.hard_end) == (lease.id, lease.ticket, lease.hard_end)
    assert (after.count, after.asked_count, after.kept) == (3, 4, FOUR[:3])
    assert after.gave == (("GPU-3", "r9"),)
    assert after.charged_from is None  # it is charged anew, for three, once it is back
    steps = planned([after, asks(9, "bio"), asks(5, "phys")], policy=TWO)
    assert steps["r0"].devices == FOUR[:3]
    assert steps["r9"].devices == ("GPU-3",)
    started = apply(after, steps["r0"], NOW, OUTS)
    assert started.attempt == lease.attempt + 1
    back = apply(started, Activate("r0", "connected"), at(9), OUTS)
    assert (back.count, back.asked_count, back.kept) == (3, 4, ())
    assert (back.active_since, back.hard_end) == (lease.active_since, lease.hard_end)
    assert (back.charged_from, back.idle_from) == (at(9), at(9))


def test_what_it_needs_is_held_while_its_old_processes_end():
    after = apply(*_home(), NOW, OUTS)
    old = cards(4, occupied_by="r0")
    others = [asks(5, "bio"), asks(6, "bio"), asks(7, "phys")]
    view = snapshot([after, *others], old, policy=TWO)
    assert {u for u, who in kept_for(view).items() if who == "r0"} == set(FOUR[:3])
    assert not any(isinstance(each, Start) for each in plan(view))


def test_what_it_gave_up_is_held_for_whom_it_was_taken():
    """Somebody who asked before, and is kept waiting for something else, does not get it."""
    after = apply(*_home(), NOW, OUTS)
    view = snapshot([after, asks(2, "phys"), asks(9, "bio")], 4, policy=TWO)
    assert kept_for(view)["GPU-3"] == "r9"


def _home():
    lease, step = through(big(), others=[asks(9, "bio")])
    return lease, step


def test_whoever_holds_as_much_as_allowed_gets_it_back_all_the_same():
    after = apply(*_home(), NOW, OUTS)
    mine = holds(7, "phys", user=after.user, devices=("GPU-4",))
    more = asks(3, "phys", user=after.user)
    tight = replace(TWO, leases_per_user=2)
    steps = planned([after, mine, more], 6, policy=tight)
    assert isinstance(steps["r0"], Start)
    assert steps["r3"].reason == "user_limit"


def test_a_warning_is_over_when_nobody_waits_any_more():
    lease = apply(big(), planned([big(), asks(9, "bio")], policy=TWO)["r0"], NOW, OUTS)
    cleared = planned([lease], policy=TWO)["r0"]
    assert cleared.reason == "nobody_waits"
    assert apply(lease, cleared, NOW, OUTS).becomes is None


def test_a_lab_takes_no_more_than_it_needs():
    view = [active(0, devices=FOUR, count=4, min_count=2)]
    lab = window("lab", 0.0, 600.0, seats=1, lead=60)
    warning = planned(view, windows=(lab,))["r0"]
    assert isinstance(warning, Warn)
    assert (warning.reason, warning.becomes) == ("reserved_in_part", Shape("t4", FOUR[:3]))
    more = window("lab", 0.0, 600.0, seats=3, lead=60)
    warning = planned(view, windows=(more,))["r0"]
    assert (warning.reason, warning.becomes) == ("reserved", None)


def test_whoever_gives_it_back_meanwhile_has_given_it_back():
    draining, _ = through(big(), others=[asks(9, "bio")])
    after = lifecycle.give_back(draining, NOW, OUTS)
    assert (after.becomes, after.end_reason_wanted) == (None, EndReason.RETURNED)


def test_what_it_keeps_is_of_the_devices_that_it_really_has():
    draining, _ = through(big(), others=[asks(9, "bio")])
    really = tuple(f"GPU-{n}" for n in (4, 5, 6, 7))
    after = apply(draining, Bind("r0", draining.reason, really), NOW, OUTS)
    assert after.becomes == Shape("t4", really[:3])
    assert after.giving == ("GPU-7",)


def test_its_time_may_run_out_before_it_is_back():
    after = replace(apply(*_home(), NOW, OUTS), hard_end=NOW)
    step = planned([after], policy=TWO)["r0"]
    assert isinstance(step, End)
    assert step.end_reason is EndReason.EXPIRED


LASTING = replace(SHORT, hard_length=9999, busy_max=9999)
SITE = replace(
    SHARED,
    time_outs=LASTING,
    classes=tuple(replace(each, time_outs=LASTING) for each in SHARED.classes),
)


@settings(max_examples=draws(4))
@given(
    least=st.integers(1, 2),
    drain=st.sampled_from(["done", "blocked", "silent"]),
    release=st.sampled_from([5, 30]),
    start=st.sampled_from([0, 5, 29]),
)
def test_a_whole_story_keeps_every_promise(least, drain, release, start):
    """Asked for, used, made smaller for others, grown again: what a replay checks holds at each."""
    site = Site(SITE, list(cards(3)))
    uses = Habit(start=start, works=10_000, drain=drain, release=release)
    site.ask_as("a", uses, groups=("phys",), count=3, min_count=least)
    for _ in range(20):
        site.step()
    (big_one,) = site.leases.values()
    assert (big_one.state, big_one.count) == (LeaseState.ACTIVE, 3)
    site.ask_as("b", Habit(start=0, works=10_000, returns=400), groups=("bio",))
    for _ in range(60):
        site.step()
    mine, other = site.leases.values()
    assert (mine.id, mine.state, mine.count) == (big_one.id, LeaseState.ACTIVE, 2)
    assert (mine.hard_end, mine.active_since) == (big_one.hard_end, big_one.active_since)
    assert other.state is LeaseState.ACTIVE
    for _ in range(60):
        site.step()
    assert site.leases[mine.id].count == 2, "it grows on its holder's word only"
    shape = admission.granted(site.snapshot(), site.leases[mine.id])
    outs = lifecycle.time_outs_of(SITE, mine)
    site._put(lifecycle.reshape(site.leases[mine.id], shape, site.now, outs))
    site.drain_sent[mine.id] = site.now
    for _ in range(60):
        site.step()
    after = site.leases[mine.id]
    grown = (
        drain == "done"
    )  # what cannot be copied to the notebook stays where it is, and so does the lease
    assert (after.state, after.count) == (LeaseState.ACTIVE, 3 if grown else 2)


# Fewer at the grant


def test_a_request_starts_with_as_many_as_there_are_where_it_says_so():
    step = planned([active(0), request(9, count=4, min_count=3)])["r9"]
    assert isinstance(step, Start)
    assert len(step.devices) == 3
    started = apply(request(9, count=4, min_count=3), step, NOW, OUTS)
    assert (started.count, started.asked_count) == (3, 4)


def test_a_request_waits_below_its_least_and_without_one():
    assert planned([active(0), active(1), request(9, count=4, min_count=3)])["r9"].reason
    assert not isinstance(planned([active(0), request(9, count=4)])["r9"], Start)


def test_a_request_waits_for_what_comes_by_itself_in_a_moment():
    going = replace(cards(4)[3], occupied_by="r0")
    view = snapshot([request(9, count=4, min_count=3)], (*cards(3), going))
    assert not any(isinstance(each, Start) for each in plan(view))


def test_a_start_that_fails_asks_for_all_of_them_again():
    start = planned([active(0), request(9, count=4, min_count=3)])["r9"]
    started = apply(request(9, count=4, min_count=3), start, NOW, OUTS)
    (failed,) = plan(snapshot([started], 3, observed=[seen(started, failed="x")]))
    assert apply(started, failed, NOW, OUTS).count == 4


# What was asked for, at its holder's word


def test_more_cards_are_within_reach_once_they_are_free():
    small = active(0, devices=FOUR[:2], count=2, asked_count=4, min_count=2)
    assert admission.within_reach(snapshot([small], 4)) == {small.id: Shape("t4", FOUR)}
    taken = active(3)
    assert admission.within_reach(snapshot([small, taken], 4)) == {small.id: Shape("t4", FOUR[:3])}
    full = snapshot([small, taken, active(2)], 4)
    assert admission.within_reach(full) == {}
    with pytest.raises(GPULeaseError, match="not free"):
        admission.granted(full, small)


def test_nobody_who_waits_is_passed_by_a_wish():
    small = active(0, devices=FOUR[:2], count=2, asked_count=3)
    assert admission.within_reach(snapshot([small, request(9)], 3)) == {}


def test_a_lease_that_is_what_was_asked_for_has_no_wish():
    with pytest.raises(GPULeaseError, match="nothing to change"):
        admission.granted(snapshot([active(0)], 4), active(0))


FALLS = policy(
    classes=(
        GPUClass("t4", "cards", max_count=4, fallback=("slice",)),
        GPUClass("slice", "slices", max_count=4),
    )
)


def test_a_free_card_is_offered_to_whoever_asked_first():
    """All who wish are told at once, and nobody of what another was told of."""
    both = [holds(n, "phys", devices=(FOUR[n],), asked_count=3, hard_end=at(9999)) for n in (0, 1)]
    assert admission.within_reach(snapshot(both, 4)) == {
        "r0": Shape("t4", (FOUR[0], *FOUR[2:])),
    }
    assert admission.within_reach(snapshot(both[::-1], 5)) == {
        "r0": Shape("t4", (FOUR[0], *FOUR[2:])),
        "r1": Shape("t4", (FOUR[1], "GPU-4")),
    }
    assert admission.granted(snapshot(both, 4), both[1]).count == 3, "who says so first has it"


@pytest.mark.parametrize("number", [10, 200])
def test_what_is_offered_is_found_for_all_at_once(number, monkeypatch):
    """However many wish for what is free and not for them, admission is asked no oftener."""
    asked = []
    monkeypatch.setattr(admission, "admit", lambda *each: asked.append(each) or admit(*each))
    some = [holds(n, "phys", devices=(f"GPU-{n}",), asked_count=2) for n in range(number)]
    admission.within_reach(snapshot([*some, request(number, count=2)], number + 2))
    assert len(asked) <= 2


def test_the_class_that_was_asked_for_is_within_reach_once_it_is_free():
    (slice_,) = cards(1)
    slice_ = replace(slice_, uuid="S-0", pool="slices")
    lease = active(0, devices=("S-0",), gpu_class="slice", asked_class="t4", pool="slices")
    view = snapshot([lease], (*cards(1), slice_), policy=FALLS)
    assert admission.within_reach(view) == {lease.id: Shape("t4", ("GPU-0",))}
    draining = lifecycle.reshape(lease, admission.granted(view, lease), NOW, OUTS)
    assert (draining.state, draining.reason) == (LeaseState.DRAINING, "reshaped")
    # The wish is held meanwhile, whoever asks.
    held = snapshot([draining, request(1)], (*cards(1), slice_), policy=FALLS)
    assert kept_for(held) == {"GPU-0": "r0"}
    assert not any(isinstance(each, Start) for each in plan(held))
    home = [seen(draining, drained="done")]
    (step,) = plan(snapshot([draining], (*cards(1), slice_), policy=FALLS, observed=home))
    after = apply(draining, step, NOW, OUTS)
    assert (after.gpu_class, after.asked_class, after.kept) == ("t4", "", ("GPU-0",))
    # Not while its old processes live: by whatever device they are found, they are of this lease.
    old = replace(slice_, occupied_by=lease.id)
    assert plan(snapshot([after], (*cards(1), old), policy=FALLS)) == []
    (start,) = plan(snapshot([after], (*cards(1), slice_), policy=FALLS))
    assert start.devices == ("GPU-0",)


def test_nothing_is_lost_by_a_wish():
    """What cannot be copied to the notebook keeps a lease as it is, whoever waits for its GPUs."""
    small = active(0, devices=FOUR[:2], count=2, asked_count=4)
    draining = lifecycle.reshape(small, Shape("t4", FOUR), NOW, OUTS)
    view = snapshot([draining], 4, observed=[seen(draining, drained="blocked")])
    (step,) = plan(view)
    assert isinstance(step, Resume)
    assert apply(draining, step, NOW, OUTS).becomes is None
    assert not isinstance(step, Drain)


def test_a_wish_waits_for_the_running_cell():
    small = active(0, devices=FOUR[:2], count=2, asked_count=4)
    with pytest.raises(GPULeaseError, match="cell is running"):
        lifecycle.reshape(small, Shape("t4", FOUR), NOW, OUTS, cells=1)


def test_a_mutant_that_holds_nothing_for_it_is_found(monkeypatch):
    module = import_module(kept_for.__module__)
    monkeypatch.setattr(module, "_for_reshaping", lambda _snapshot: {})
    with pytest.raises(AssertionError):
        without_shrinking(test_what_it_needs_is_held_while_its_old_processes_end, monkeypatch)()


def test_a_mutant_that_takes_all_of_a_lease_is_found(monkeypatch):
    monkeypatch.setattr(Lease, "spares", property(lambda _self: 0))
    with pytest.raises(AssertionError):
        without_shrinking(test_nobody_loses_more_than_is_needed, monkeypatch)()


def test_a_mutant_that_ends_what_should_go_on_is_found(monkeypatch):
    monkeypatch.setattr(planner, "_reshaped", lambda _snapshot, _lease: None)
    story = test_a_whole_story_keeps_every_promise.hypothesis.inner_test
    with pytest.raises(AssertionError):
        story(least=1, drain="done", release=5, start=0)


def test_it_goes_on_in_a_pool_that_was_paused_meanwhile():
    after = apply(*_home(), NOW, OUTS)
    pools = tuple(replace(each, paused=each.name == "cards") for each in TWO.pools)
    steps = planned([after, asks(8, "bio")], 6, policy=replace(TWO, pools=pools))
    assert (type(steps["r0"]), steps["r0"].devices) == (Start, after.kept)
    assert steps["r8"].reason == "paused"


def test_a_seat_of_a_window_is_not_on_what_it_goes_on_with():
    """The only free cards are its own: they are no more the window's than those of who runs."""
    after = apply(*_home(), NOW, OUTS)
    lab = window("lab", -5.0, 600.0, seats=2, lead=0)
    student = request(3, groups=("cs101",))
    for order in ([after, student], [student, after]):
        steps = planned(order, 3, policy=TWO, windows=(lab,))
        assert (type(steps["r0"]), steps["r0"].devices) == (Start, after.kept)
        assert not isinstance(steps.get("r3"), Start)
