"""A fault of the program is none of the device; the device's own keeps it out, longer each time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy.quarantine import (
    APPLICATION_XIDS,
    KINDS,
    MEMORY,
    MOST,
    PROBATION,
    Condition,
    Incident,
    judge,
)

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def over(seconds: float, kind: str = "xid", xid: int | None = 79) -> Incident:
    return Incident(kind, ago(seconds), ago(seconds), xid if kind == "xid" else None)


def test_a_device_without_faults_is_healthy() -> None:
    assert judge([], NOW) == Condition()


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_an_application_fault_is_none_of_the_device(xid: int) -> None:
    assert xid in APPLICATION_XIDS
    assert judge([over(1, xid=xid)] * 50, NOW) == Condition()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_keeps_the_device_out_while_it_lasts_and_says_why(kind: str) -> None:
    found = judge([Incident(kind, ago(5), None, 79)], NOW)
    assert (found.healthy, found.until, found.repeats) == (False, None, 1)
    assert found.sentence
    assert "{" not in found.sentence


def test_probation_begins_when_the_fault_is_over() -> None:
    lost = Incident("gpu_lost", ago(5000), ago(100))
    assert judge([lost], NOW).until == ago(100) + timedelta(seconds=PROBATION)
    assert judge([lost], NOW + timedelta(seconds=PROBATION)).healthy


def test_each_repeat_doubles_probation_and_the_fourth_lasts_a_day() -> None:
    faults = [over(4000 - 1000 * n) for n in range(MOST)]
    for count in range(1, MOST):
        found = judge(faults[:count], ago(4000 - 1000 * (count - 1)))
        assert found.repeats == count
        assert found.until == faults[count - 1].at + timedelta(seconds=PROBATION * 2 ** (count - 1))
    assert judge(faults, NOW).until == faults[-1].at + timedelta(seconds=MEMORY)


def test_a_burst_of_reports_is_one_fault() -> None:
    assert judge([over(60 - 5 * n, xid=48 + n) for n in range(8)], NOW).repeats == 1


@pytest.mark.parametrize("kind", ["remap_failure", "retirement_failure"])
def test_what_only_an_exchange_mends_is_never_forgotten(kind: str) -> None:
    found = judge([over(3 * MEMORY, kind)], NOW)
    assert (found.healthy, found.until) == (False, None)


def test_old_faults_are_forgotten() -> None:
    assert judge([over(MEMORY + 1)] * MOST, NOW) == Condition()


incidents = st.lists(
    st.builds(
        lambda kind, start, length, xid: Incident(
            kind, ago(start), None if length is None else ago(max(0.0, start - length)), xid
        ),
        st.sampled_from(sorted(KINDS)),
        st.floats(0, 2 * MEMORY),
        st.none() | st.floats(0, 1000),
        st.integers(0, 200),
    ),
    max_size=8,
)


@given(incidents, st.randoms())
def test_the_order_of_reports_does_not_matter(found: list[Incident], random: object) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert judge(shuffled, NOW).healthy == judge(found, NOW).healthy
    assert judge(shuffled, NOW).until == judge(found, NOW).until


@given(incidents, incidents)
def test_one_more_fault_never_heals(found: list[Incident], more: list[Incident]) -> None:
    if not judge(found, NOW).healthy:
        assert not judge([*found, *more], NOW).healthy


@given(incidents)
def test_whatever_is_over_heals_within_two_days_or_says_that_it_never_will(
    found: list[Incident],
) -> None:
    later = judge(found, NOW + timedelta(seconds=2 * MEMORY + 1))
    assert later.healthy or later.until is None
