"""Pools that grow in a replay: who waits for a node, what it costs, and when it goes again."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.policy.catalog import Elastic
from gpulease.policy.model import Pool
from gpulease.simulate.table import table
from gpulease.simulate.world import Assumptions, replay
from tests.helpers import draws
from tests.simulate.build import cards, policy, session, trace

COMES = 300.0
STAYS = 600.0
HOUR = 3600.0


def growing(most: int, **changed):
    elastic = Elastic(max=most, provision_time=COMES, **changed)
    return replace(policy(), pools=(Pool("cards", elastic=elastic),))


def played(most: int, *sessions, gpus: int = 0, length: float = 7200.0, **changed):
    assumed = Assumptions(unneeded=STAYS)
    return replay(trace(*sessions, length=length), growing(most, **changed), cards(gpus), assumed)


def test_from_zero_the_first_waits_for_a_node_and_the_next_finds_it_there():
    first, second = session("a", 100, (0.0, 60.0)), session("b", 700, (0.0, 60.0))
    found = played(4, first, second)
    assert found.waits.served == 2
    assert found.waits.p95 == pytest.approx(COMES + 5, abs=2)
    assert found.waits.p50 == pytest.approx(5, abs=2)
    assert found.gpus == 1
    assert "of added nodes" in table([found])


def test_a_node_that_nobody_uses_goes_and_the_next_one_waits_again():
    people = [session("a", 100, (0.0, 60.0)), session("b", 4000, (0.0, 60.0))]
    found = played(4, *people)
    assert found.waits.p50 == pytest.approx(COMES + 5, abs=2)
    # Each is there while its lease starts and is used, until that is given back, and unneeded.
    there = found.held_hours * HOUR + 2 * STAYS
    assert found.added_hours * HOUR == pytest.approx(there, abs=30)
    assert found.gpus == 1


def test_what_waits_for_a_node_holds_nothing():
    found = played(4, session("a", 100, (0.0, 60.0)))
    alone = played(4, session("a", 100, (0.0, 60.0)), gpus=1)
    assert found.held_hours == pytest.approx(alone.held_hours, abs=0.01)
    assert alone.added_hours == 0
    waiting = sum(bin_[2] for bin_ in found.bins) * 7200 / len(found.bins)
    assert waiting == pytest.approx(COMES, abs=5)


def test_it_grows_no_further_than_it_may():
    people = [session(name, 100, (0.0, 7000.0)) for name in "abcd"]
    found = played(2, *people)
    assert (found.gpus, found.waits.served, found.waits.open) == (2, 2, 2)


def test_whoever_asks_for_several_gets_them_of_one_node():
    found = played(4, session("a", 100, (0.0, 60.0), count=3))
    assert (found.gpus, found.waits.served) == (3, 1)


def test_who_leaves_before_the_node_is_there_pays_nothing_and_it_comes_all_the_same():
    found = played(4, session("a", 100, (0.0, 60.0), patience=30.0))
    assert (found.held_hours, found.waits.given_up) == (0, 1)
    assert found.added_hours * HOUR == pytest.approx(STAYS, abs=2)


def test_who_waits_takes_what_comes_free_before_the_node_is_there():
    people = [session("a", 0, (0.0, 150.0)), session("b", 100, (0.0, 3000.0))]
    found = played(2, *people, gpus=1)
    assert found.waits.served == 2
    assert found.waits.p95 is not None
    assert found.waits.p95 < COMES - 100


@settings(max_examples=draws(8), deadline=None)
@given(
    starts=st.lists(st.integers(0, 5000), min_size=1, max_size=12),
    busy=st.sampled_from([30.0, 300.0, 2000.0]),
    most=st.integers(1, 5),
    firm=st.integers(0, 2),
    patience=st.sampled_from([float("inf"), 200.0]),
)
def test_a_replay_in_which_nodes_come_and_go_breaks_no_promise(starts, busy, most, firm, patience):
    """The invariants are checked at each step of it; here, that nothing is lost or made up."""
    people = [
        session(f"p{n}", at, (0.0, busy), (400.0, busy), count=1 + n % 2, patience=patience)
        for n, at in enumerate(starts)
    ]
    found = played(most, *people, gpus=min(firm, most), firm=min(firm, most))
    waits = found.waits
    assert waits.served + waits.given_up + waits.open <= waits.asked
    assert found.gpus <= most
    assert found.added_hours * HOUR <= (most - min(firm, most)) * found.seconds + 1
    assert found.held_hours <= found.added_hours + min(firm, most) * found.seconds / HOUR + 1e-6
