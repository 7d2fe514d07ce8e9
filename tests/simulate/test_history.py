"""What is read into the record: which part of a lease was use, and which leases are one session."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gpulease.policy.model import LeaseState, Verdict
from gpulease.simulate.history import recorded, used_spans
from gpulease.simulate.trace import MONDAY, Burst
from tests.policy.build import request

BUSY, QUIET, IDLE, UNKNOWN = Verdict.BUSY, Verdict.QUIET, Verdict.IDLE, Verdict.UNKNOWN


def at(seconds: float) -> datetime:
    return MONDAY + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], [(0, 100)]),
        ([(0, UNKNOWN)], [(0, 100)]),
        ([(0, IDLE)], [(0, 0)]),
        ([(5, BUSY)], [(5, 100)]),
        ([(5, BUSY), (20, IDLE)], [(5, 20)]),
        ([(5, BUSY), (20, IDLE), (50, BUSY), (60, IDLE)], [(5, 20), (50, 60)]),
        ([(5, BUSY), (20, QUIET), (30, IDLE)], [(5, 30)]),
        ([(5, QUIET), (20, IDLE)], [(5, 20)]),
        ([(5, BUSY), (20, UNKNOWN), (30, BUSY), (40, IDLE)], [(5, 40)]),
        ([(5, IDLE), (20, UNKNOWN), (30, IDLE)], [(0, 0)]),
        ([(5, BUSY), (20, IDLE), (20.5, BUSY), (40, IDLE)], [(5, 40)]),
        ([(-9, BUSY), (20, IDLE)], [(0, 20)]),
        ([(5, BUSY), (200, IDLE)], [(5, 100)]),
        ([(150, BUSY), (200, IDLE)], [(0, 0)]),
    ],
)
def test_use_is_read_from_changes_of_verdict(changes, expected):
    found = used_spans([(at(s), verdict) for s, verdict in changes], at(0), at(100))
    assert found == [(at(begin), at(end)) for begin, end in expected]


def lease(name: str, asked: float, active: float | None, ended: float | None, **more):
    return replace(
        request(0),
        **{
            "id": name,
            "user": "ann",
            "created": at(asked),
            "active_since": None if active is None else at(active),
            "ended": None if ended is None else at(ended),
            "state": LeaseState.ACTIVE if ended is None else LeaseState.ENDED,
            "groups": ("bio",),
            **more,
        },
    )


def test_leases_of_one_server_are_one_session_with_time_to_think_between():
    verdicts = {
        "one": [(at(110), BUSY), (at(200), IDLE)],
        "two": [(at(1030), BUSY), (at(1060), IDLE), (at(1100), BUSY), (at(1160), IDLE)],
    }
    leases = [lease("two", 1000, 1010, 1500), lease("one", 100, 105, 600)]
    found = recorded(leases, verdicts, at(0), at(10_000))
    (session,) = found.trace.sessions
    # 10 s of the first wait and 30 of the second were waits for the GPU, no thinking.
    assert session.bursts == (Burst(0, 90), Burst(800, 30), Burst(40, 60))
    assert (session.start, session.linger, session.project) == (100, 340, "bio")
    assert (found.requests, found.left_out) == (2, 0)


def test_after_hours_it_is_another_session():
    leases = [lease("one", 0, 5, 600), lease("two", 20_000, 20_005, 20_600)]
    found = recorded(leases, {}, at(0), at(90_000))
    assert [each.start for each in found.trace.sessions] == [0, 20_000]


def test_servers_and_people_are_apart():
    leases = [
        lease("one", 0, 5, 600),
        lease("two", 10, 15, 600, server="gpu"),
        lease("three", 20, 25, 600, user="bob"),
    ]
    assert len(recorded(leases, {}, at(0), at(9000)).trace.sessions) == 3


def test_who_never_had_a_gpu_is_counted_and_left_out():
    found = recorded([lease("one", 0, None, 60), lease("two", 5, 9, None)], {}, at(0), at(100))
    assert (found.requests, found.left_out, len(found.trace.sessions)) == (2, 1, 1)
    assert found.trace.sessions[0].bursts == (Burst(0, 91),)


def test_only_what_was_asked_for_within_the_time_counts():
    leases = [lease("one", 0, 5, 600), lease("two", 700, 705, 800), lease("three", 900, 905, 990)]
    found = recorded(leases, {}, at(500), at(900))
    assert [each.bursts for each in found.trace.sessions] == [(Burst(0, 95),)]


def test_a_fallback_that_served_is_replayed_as_what_was_asked_for():
    served = lease("one", 0, 5, 60, gpu_class="slice", asked_class="t4")
    assert recorded([served], {}, at(0), at(100)).trace.sessions[0].gpu_class == "t4"
