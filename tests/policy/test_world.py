"""What must hold always, in worlds that hypothesis invents, and a few told stories."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.policy.model import EndReason, LeaseState, TimeOuts
from tests.helpers import draws
from tests.policy.build import NOW, cards, policy
from tests.policy.world import TICK, Habit, World, longest_life

OUTS = TimeOuts(
    idle=60, idle_under_pressure=30, quiet=120, warning=20, warm_up=5, keep=60, claim=40,
    drain_max=20, interrupt_grace=5, hard_length=400, start_max=30, unknown_hold=40,
)  # fmt: skip
POLICY = policy(OUTS, leases_per_user=1)

habits = st.builds(
    Habit,
    start=st.sampled_from([0, 5, 29, 1000]),
    works=st.sampled_from([0, 20, 200, 10_000]),
    cells_only=st.booleans(),
    fails=st.integers(0, 4),
    drain=st.sampled_from(["done", "blocked", "silent"]),
    claims=st.booleans(),
    returns=st.sampled_from([None, 50]),
    release=st.sampled_from([0, 5, 30]),
    hears=st.booleans(),
)
healthy = habits.map(lambda habit: replace(habit, fails=0, start=min(habit.start, 5)))
asks = st.lists(st.tuples(st.integers(0, 300), habits, st.sampled_from([1, 1, 1, 2])), max_size=7)


def world(devices: int) -> World:
    return World(POLICY, list(cards(devices)))


@settings(max_examples=draws(10))
@given(st.integers(2, 4), asks)
def test_everything_ends_in_bounded_time(devices, arrivals):
    """`World` checks in each tick: no device twice, no state above its bound, one action each."""
    place = world(devices)
    waiting = sorted(enumerate(arrivals), key=lambda each: each[1][0])
    # At worst all live one after the other.
    bound = 300 + (len(arrivals) + 1) * longest_life(POLICY)
    while (place.now - NOW).total_seconds() < bound:
        while waiting and (place.now - NOW).total_seconds() >= waiting[0][1][0]:
            number, (_, habit, count) = waiting.pop(0)
            place.ask(f"user{number}", habit, count)
        place.step()
        ended = all(lease.state is LeaseState.ENDED for lease in place.leases.values())
        if not waiting and ended:
            break
    assert not waiting
    assert all(lease.state is LeaseState.ENDED for lease in place.leases.values())


@settings(max_examples=draws(8))
@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 100), healthy), max_size=7))
def test_single_requests_start_in_the_order_of_their_tickets(devices, arrivals):
    """While a start backs off others pass, and what was reclaimed for one of them stays theirs."""
    place = world(devices)
    waiting = sorted(enumerate(arrivals), key=lambda each: each[1][0])
    for _ in range(120):
        while waiting and (place.now - NOW).total_seconds() >= waiting[0][1][0]:
            number, (_, habit) = waiting.pop(0)
            place.ask(f"user{number}", habit)
        place.step()
    firsts = list(dict.fromkeys(lease_id for lease_id, _ in place.grants))
    assert firsts == sorted(firsts, key=lambda lease_id: place.leases[lease_id].ticket)


def ended(place: World, lease_id: str) -> tuple[EndReason | None, float]:
    lease = place.leases[lease_id]
    assert lease.ended is not None, lease
    return lease.end_reason, (lease.ended - NOW).total_seconds()


def test_an_idle_lease_leaves_and_the_next_is_served_at_once():
    place = world(1)
    first = place.ask("ann", Habit(works=30))
    place.run(10)
    second = place.ask("bob", Habit())
    place.run(180)
    reason, when = ended(place, first.id)
    assert reason is EndReason.IDLE
    # start 5, work 25, window 10, idle 30 (somebody waits), warning 20, drain 5, and the ticks
    assert 95 <= when <= 95 + 4 * TICK
    granted = dict(place.grants)[second.id]
    assert (granted - NOW).total_seconds() <= when + Habit().release + TICK


def test_a_busy_lease_is_left_alone_while_others_wait():
    place = world(1)
    first = place.ask("ann", Habit(works=10_000))
    second = place.ask("bob", Habit())
    place.run(300)
    assert place.leases[first.id].state is LeaseState.ACTIVE
    assert place.leases[second.id].reason == "no_capacity"
    place.run(300)
    assert ended(place, first.id)[0] is EndReason.EXPIRED
    assert place.leases[second.id].active_since is not None


def test_an_undrainable_lease_goes_back_once_and_then_is_parked():
    place = world(1)
    lease = place.ask("ann", Habit(works=10, drain="blocked"))
    place.run(140)
    back = place.leases[lease.id]
    assert (back.state, back.undrainable) == (LeaseState.ACTIVE, True)
    place.run(150)
    assert ended(place, lease.id)[0] is EndReason.IDLE


def test_a_generator_is_no_immunity_while_somebody_waits():
    place = world(1)
    first = place.ask("ann", Habit(works=10, drain="blocked"))
    second = place.ask("bob", Habit())
    place.run(150)
    assert ended(place, first.id)[0] is EndReason.IDLE
    assert place.leases[second.id].active_since is not None


def test_a_large_request_is_not_starved_by_small_ones():
    """Single users keep coming; a request for both GPUs is served all the same."""
    place = world(2)
    large = None
    for number in range(240):
        if number % 2 == 0 and number < 230:
            place.ask(f"user{number}", Habit(works=20, returns=30, release=0))
        if number == 10:
            large = place.ask("big", Habit(works=20), count=2)
        place.step()
    assert large is not None
    assert place.leases[large.id].active_since is not None


def test_asking_during_a_drain_nobody_waits_for_takes_it_back():
    place = world(1)
    lease = place.ask("ann", Habit(works=10, drain="silent"))
    while place.leases[lease.id].state is not LeaseState.DRAINING:
        place.step()
    again = place.ask("ann", Habit())
    assert (again.id, again.state, again.reason) == (lease.id, LeaseState.ACTIVE, "asked_again")
    place.run(30)
    assert place.leases[lease.id].state is LeaseState.ACTIVE


def test_a_lease_nobody_hears_of_stays_until_its_hard_end():
    place = world(1)
    lease = place.ask("ann", Habit(works=10_000, hears=False))
    place.run(350)
    assert place.leases[lease.id].state is LeaseState.ACTIVE
    assert {alert.reason for alert in place.alerts} == {"no_data"}
    place.run(200)
    assert ended(place, lease.id)[0] is EndReason.EXPIRED
