"""A lease that runs and that the store does not know."""

from dataclasses import replace

import pytest

from gpulease.policy import lifecycle
from gpulease.policy.lifecycle import adoption
from gpulease.policy.model import EndReason, LeaseState, Observed
from tests.policy.build import NOW, active, at, draining, request, starting

RECORD = active(1, "n0/0", attempt=3, hard_end=at(20_000))


def seen(**changed):
    base = Observed("r1", 3, connected=True, devices=("n0/1",), record=RECORD)
    return replace(base, **changed)


def test_it_goes_on_for_an_hour_where_it_runs():
    lease = adoption.adopted(seen(), None, NOW)
    assert lease is not None
    assert (lease.state, lease.attempt, lease.devices) == (LeaseState.ACTIVE, 3, ("n0/1",))
    assert lease.hard_end == lease.idle_from == at(adoption.PEACE)
    assert (lease.user, lease.active_since) == (RECORD.user, RECORD.active_since)


def test_its_own_end_stays_when_that_is_sooner():
    lease = adoption.adopted(seen(record=replace(RECORD, hard_end=at(60))), None, NOW)
    assert lease is not None
    assert lease.hard_end == at(60)


@pytest.mark.parametrize("made", [request, starting, active, draining])
def test_a_later_attempt_than_the_store_knows_of_is_adopted(made):
    known = made(1, attempt=2, groups=("g",), version=7, wanted=60.0)
    lease = adoption.adopted(seen(), known, NOW)
    assert lease is not None
    assert (lease.state, lease.attempt, lease.version) == (LeaseState.ACTIVE, 3, 8)
    assert (lease.groups, lease.drain_until, lease.end_reason_wanted) == (("g",), None, None)


@pytest.mark.parametrize("attempt", [3, 4])
def test_what_the_store_knows_is_not_adopted(attempt):
    assert adoption.adopted(seen(), active(1, attempt=attempt), NOW) is None


def test_an_end_is_never_taken_back():
    over = lifecycle.end(active(1, attempt=2), EndReason.RETURNED, NOW)
    assert adoption.adopted(seen(), over, NOW) is None


def test_a_pod_that_says_nothing_or_is_nowhere_is_not_adopted():
    assert adoption.adopted(seen(record=None), None, NOW) is None
    assert adoption.adopted(seen(devices=()), None, NOW) is None


def test_an_admin_hears_of_it():
    assert "r1" in adoption.alert(RECORD).sentence
