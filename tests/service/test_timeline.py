"""How GPUs were used over time: every second is counted once, in the step that it belongs to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy.model import Device
from gpulease.service.control_loop.evidence import Readings
from gpulease.service.leases.history import STEPS, by_device, step_of, timeline
from gpulease.store import EvidenceMinute, writing
from gpulease.store.usage import HeldTime, Used, Waited
from tests.helpers import wait_for_async
from tests.policy.build import NOW, active, at, busy
from tests.service.kit import Site, active_lease

START = datetime(2026, 3, 2, 8, tzinfo=UTC)
#: Seconds around two hours that are looked at.
MOMENTS = st.integers(-4_000, 11_000)


def moment(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@given(
    st.lists(st.tuples(st.integers(0, 119), *[st.floats(0, 300)] * 4), max_size=40),
    st.integers(1, 50),
)
def test_all_device_seconds_are_in_the_steps(rows: list[Any], minutes: int) -> None:
    used = [Used(moment(60 * minute), *seconds) for minute, *seconds in rows]
    step = timedelta(minutes=minutes)
    found = timeline(used, [], START, moment(7200), step)
    for name in ("busy", "quiet", "idle", "unknown"):
        seconds = 0.0
        for number, one in enumerate(found):
            length = min(step, moment(7200) - START - number * step)
            seconds += one[name] * length.total_seconds()  # type: ignore[literal-required]
        assert seconds == pytest.approx(sum(getattr(each, name) for each in used), abs=0.001 * 7200)


@given(st.lists(st.tuples(MOMENTS, MOMENTS, st.booleans(), st.booleans()), max_size=20))
def test_waiting_is_counted_while_it_lasts_and_a_grant_when_it_comes(rows: list[Any]) -> None:
    waits = []
    for first, second, granted, over in rows:
        began, ended = moment(min(first, second)), moment(max(first, second))
        waits.append(Waited(began, ended, granted) if over else Waited(began, None, False))
    end = moment(7200)
    found = timeline([], waits, START, end, timedelta(minutes=10))
    overlaps = ((min(each.until or end, end) - max(each.since, START)) for each in waits)
    expected = sum(max(each.total_seconds(), 0) for each in overlaps)
    assert sum(one["waiting"] * 600 for one in found) == pytest.approx(expected, abs=0.001 * 7200)
    given = [each for each in waits if each.granted and each.until and START <= each.until < end]
    assert sum(one["granted"] for one in found) == len(given)
    lengths = [(each.until - each.since).total_seconds() for each in given if each.until]
    longest = [one["longest_wait"] for one in found if one["longest_wait"] is not None]
    assert max(longest, default=None) == max(lengths, default=None)


@given(st.integers(1, 90 * 24), st.booleans())
def test_a_chart_has_few_steps_of_whole_minutes_or_hours(hours: int, folded: bool) -> None:
    length = timedelta(hours=hours)
    step = step_of(length, folded)
    assert length / step <= STEPS
    assert step % timedelta(hours=1 if folded else 0, minutes=0 if folded else 1) == timedelta()


def test_a_devices_share_is_that_of_all_its_leases_and_of_the_time_that_a_step_has() -> None:
    there = [Device("a", "cards", "GPU a", 0), Device("b", "cards", "GPU b", 0)]
    steps = [
        [HeldTime(("a",), 600.0, 1800.0), HeldTime(("a", "gone"), 0.0, 900.0)],
        [HeldTime(("gone",), 1800.0, 1800.0)],  # the second step has half an hour
    ]
    found = by_device(steps, there, START, moment(5400), timedelta(hours=1))
    assert {each["uuid"]: (each["name"], each["held"], each["busy"]) for each in found} == {
        "a": ("GPU a", [0.75, 0.0], [0.167, 0.0]),
        "b": ("GPU b", [0.0, 0.0], [0.0, 0.0]),
        "gone": ("", [0.25, 1.0], [0.0, 1.0]),
    }


async def test_the_use_of_a_device_is_read_from_the_minutes_of_its_leases(site: Site) -> None:
    lease, _, _ = await active_lease(site)
    services = site.service.services
    at = services.loop.shown().now.replace(second=0, microsecond=0) - timedelta(hours=5)
    minutes = [EvidenceMinute(lease["id"], at, busy=30.0, idle=30.0)]
    await services.ledger.write(writing.add_evidence, [], minutes)
    admin = site.client(site.hub.admin_token())
    found = await admin.call("GET", "usage/devices?hours=6")
    before = [(sum(each["held"][:-4]), sum(each["busy"][:-4])) for each in found["items"]]
    assert [round(share * found["step"]) for share in max(before)] == [60, 30]
    assert min(before) == (0, 0)


async def test_admins_see_it_as_data_and_as_a_table_and_nobody_else_does(site: Site) -> None:
    await active_lease(site)
    admin = site.client(site.hub.admin_token())
    found = await admin.call("GET", "usage/timeline?hours=6")
    assert (found["devices"], found["step"]) == (2, 120)
    assert len(found["items"]) == STEPS
    for hours in (25, 720):
        found = await admin.call("GET", f"usage/timeline?hours={hours}")
        assert found["step"] % 3600 == 0
        assert found["since"].endswith(":00:00+00:00")
    student = site.client(site.hub.server_token("stu"))
    for path in ("usage/timeline", "usage/timeline.csv", "usage/devices", "usage/devices.csv"):
        with pytest.raises(GPULeaseError) as refused:
            await student.call("GET", path)
        assert refused.value.status == 403
    with pytest.raises(GPULeaseError):
        await admin.call("GET", "usage/timeline?hours=0")


def test_readings_of_ten_minutes_are_kept_ten_seconds_apart() -> None:
    readings, lease, memory = Readings(), active(1), iter(range(10**6))
    for second in range(700):
        readings.add([lease], {lease.id: busy()}, lambda _: next(memory), at(second))
    found = readings.of(lease.id)
    assert [each.at for each in found] == [at(second) for second in range(100, 700, 10)]
    assert found[0].memory_used == 10
    readings.add([], {}, lambda _: None, NOW)
    assert readings.of(lease.id) == ()


async def test_the_use_of_ones_own_lease_is_read_and_of_no_others(site: Site) -> None:
    lease, _, _ = await active_lease(site)
    owner, kept = site.client(site.hub.server_token("stu")), site.service.services.loop.observer
    await wait_for_async(lambda: kept.readings.of(lease["id"]), 10, "a reading")
    found = await owner.call("GET", f"leases/{lease['id']}/use")
    assert set(found["items"][0]) == {"at", "utilisation", "memory_used"}
    with pytest.raises(GPULeaseError) as refused:
        await site.client(site.hub.server_token("eve")).call("GET", f"leases/{lease['id']}/use")
    assert refused.value.status == 404
