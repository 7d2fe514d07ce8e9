"""The driver's events, lost devices and counters become incidents, each once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gpulease.gpus.agent.health import EVENTS, Event, Health, Incidents, Listener
from gpulease.gpus.driver import Library
from gpulease.gpus.reading import DeviceReader, DeviceReading
from gpulease.policy.quarantine import APPLICATION_XIDS, KINDS
from tests.gpus.stand_in import Driver
from tests.gpus.test_nvml import FIRST, SECOND
from tests.helpers import wait_for

pytestmark = pytest.mark.compiler

NOW = datetime(2026, 5, 4, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.fixture
def library(driver: Driver) -> Iterator[Library]:
    found = Library()
    found.ready()
    yield found
    found.close()


@pytest.fixture
def listener(driver: Driver, library: Library) -> Iterator[Listener]:
    found = Listener(library)
    found.start()
    yield found
    found.end()
    found.join(10)


def heard(listener: Listener, driver: Driver, kind: int, data: int = 0, card: int = 0) -> Event:
    """Raise an event and wait until it is heard."""
    assert listener.listening.wait(30)
    driver.event(kind, data, card)
    return listener.events.get(timeout=30)


@pytest.mark.parametrize("kind", EVENTS)
def test_each_event_is_heard_with_its_device(driver: Driver, listener: Listener, kind: int) -> None:
    found = heard(listener, driver, kind, 79, card=1)
    assert (found.device, found.kind) == (SECOND, EVENTS[kind])
    assert found.xid == (79 if EVENTS[kind] == "xid" else None)
    assert EVENTS[kind] in KINDS


def test_other_events_are_none(driver: Driver, listener: Listener) -> None:
    assert listener.listening.wait(30)
    driver.event(0x1, 0)  # a single bit that was corrected
    found = heard(listener, driver, 0x2)
    assert found.kind == "double_bit_ecc"


def test_an_event_of_a_device_that_is_gone_speaks_of_all(
    driver: Driver, library: Library, listener: Listener
) -> None:
    reader = DeviceReader(library)
    reader.look()
    event = heard(listener, driver, 0x8, 79, card=-1)
    assert event.device == ""
    incidents = Incidents()
    assert Health(incidents).heard(event, reader.seen)
    assert [len(incidents.of(uuid)) for uuid in (FIRST, SECOND)] == [1, 1]


def test_events_are_heard_again_after_the_driver_was_away(
    driver: Driver, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpulease.gpus.agent.health._AGAIN_SECONDS", 0.05)
    driver.fail("nvmlEventSetCreate", 3)
    listener = Listener(library)
    listener.start()
    driver.fail("nvmlEventSetCreate", None)
    assert heard(listener, driver, 0x8, 48).xid == 48
    driver.fail("nvmlEventSetWait", 999)
    wait_for(lambda: not listener.listening.is_set(), 30, "an end of listening")
    driver.fail("nvmlEventSetWait", None)
    assert heard(listener, driver, 0x8, 62).kind == "xid"
    listener.end()
    listener.join(10)


@pytest.mark.parametrize("xid", sorted(APPLICATION_XIDS))
def test_a_programs_own_fault_is_no_incident(xid: int) -> None:
    incidents = Incidents()
    assert not Health(incidents).heard(Event(FIRST, "xid", NOW, xid), {})
    assert incidents.of(FIRST) == []


@pytest.mark.parametrize(
    ("gap", "kind"),
    [
        ("gpu_is_lost", "gpu_lost"),
        ("gpu_not_found", "gpu_lost"),
        ("reset_required", "reset_required"),
    ],
)
def test_a_lost_device_is_one_incident_for_as_long_as_it_is_lost(gap: str, kind: str) -> None:
    incidents = Incidents()
    health = Health(incidents)
    assert health.saw(DeviceReading(FIRST, NOW, None, gap))
    for n in range(1, 60):
        assert not health.saw(DeviceReading(FIRST, later(n), None, gap))
    assert not health.saw(DeviceReading(FIRST, later(60), None, "driver_not_loaded"))
    (found,) = incidents.of(FIRST)
    assert (found["kind"], found["at"], found["until"]) == (kind, NOW.isoformat(), None)
    assert health.saw(DeviceReading(FIRST, later(61), 0.0))
    assert incidents.of(FIRST)[0]["until"] == later(61).isoformat()
    assert not health.saw(DeviceReading(FIRST, later(62), 0.0))


def test_rows_that_cannot_be_remapped_and_new_double_bits_are_incidents(
    driver: Driver, library: Library
) -> None:
    reader = DeviceReader(library)
    reader.look()
    incidents = Incidents()
    health = Health(incidents)
    driver.set(gpu0__ecc_double=5)
    nvml = library.ready()
    health.check(nvml, reader.seen, NOW)
    assert incidents.of(FIRST) == [], "what was there before is no news"
    driver.set(gpu0__ecc_double=6, gpu1__remapped="0:1:1:1")
    health.check(nvml, reader.seen, later(10))
    health.check(nvml, reader.seen, later(20))
    assert [each["kind"] for each in incidents.of(FIRST)] == ["double_bit_ecc"]
    assert [(each["kind"], each["until"]) for each in incidents.of(SECOND)] == [
        ("remap_failure", None)
    ]


@pytest.mark.parametrize("code", [3, 15, 999])
def test_counters_that_cannot_be_read_say_nothing(
    driver: Driver, library: Library, code: int
) -> None:
    reader = DeviceReader(library)
    reader.look()
    driver.fail("nvmlDeviceGetRemappedRows", code)
    driver.fail("nvmlDeviceGetTotalEccErrors", code)
    incidents = Incidents()
    Health(incidents).check(library.ready(), reader.seen, NOW)
    assert incidents.of(FIRST) == []


def test_a_burst_of_one_fault_is_one_incident_and_old_ones_are_forgotten() -> None:
    incidents = Incidents()
    for n in range(20):
        incidents.happened(FIRST, "xid", later(n), 79)
    incidents.happened(FIRST, "xid", later(20), 48)
    incidents.happened(SECOND, "xid", later(20), 79)
    assert [len(incidents.of(uuid)) for uuid in (FIRST, SECOND)] == [2, 1]
    incidents.happened(FIRST, "xid", later(100), 79)
    assert len(incidents.of(FIRST)) == 3
    assert len(incidents.all(later(86420 + 50))) == 1
    assert len(incidents.of(FIRST)) == 1


def test_a_device_that_fails_all_the_time_fills_no_memory_and_what_lasts_is_kept() -> None:
    incidents = Incidents()
    incidents.lasts(FIRST, "gpu_lost", NOW, present=True)
    for n in range(100):
        incidents.happened(FIRST, "xid", later(100 * n), 79)
    found = incidents.of(FIRST)
    assert len(found) == 32
    assert found[0]["kind"] == "gpu_lost"
    assert found[-1]["at"] == later(9900).isoformat()
