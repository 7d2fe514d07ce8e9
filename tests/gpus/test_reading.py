"""What the agent reads each second, and what it says where a device cannot answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gpulease.gpus.driver import Library
from gpulease.gpus.reading import DeviceReader, DeviceReading
from gpulease.policy.model import EvidenceLevel
from tests.gpus.stand_in import GIB, Driver
from tests.gpus.test_nvml import ERRORS, FIRST, SECOND

pytestmark = pytest.mark.compiler

NOW = datetime(2026, 5, 4, tzinfo=UTC)
UNABLE = {"NOT_SUPPORTED", "NO_PERMISSION", "FUNCTION_NOT_FOUND"}
PROCESS, DEVICE, CELLS = EvidenceLevel.PROCESS, EvidenceLevel.DEVICE, EvidenceLevel.CELLS


@pytest.fixture
def reader(driver: Driver) -> Iterator[DeviceReader]:
    library = Library()
    found = DeviceReader(library)
    found.look()
    yield found
    library.close()


def one(reader: DeviceReader, uuid: str = FIRST) -> DeviceReading:
    return next(each for each in reader.read(NOW) if each.uuid == uuid)


def test_a_second_tells_use_memory_power_and_each_process(
    driver: Driver, reader: DeviceReader
) -> None:
    driver.set(gpu0__use=40, gpu0__process_use="7:30,9:10")
    found = DeviceReading(FIRST, NOW, 0.4, "", GIB, 60.0, {7: 0.3, 9: 0.1}, {}, ())
    assert one(reader) == found
    assert reader.seen[FIRST].level is PROCESS


def test_nothing_newer_of_the_processes_is_unused_and_no_failure(
    driver: Driver, reader: DeviceReader
) -> None:
    driver.set(gpu0__process_use="7:30:1000")
    assert one(reader).by_pid == {7: 0.3}
    found = one(reader)
    assert (found.by_pid, found.use, found.gap) == ({}, 0.0, "")


def test_the_memory_of_each_process_is_told_once(driver: Driver, reader: DeviceReader) -> None:
    driver.set(gpu0__processes="7:100,9:300", gpu0__graphics="7:100,8:50")
    assert one(reader).memory_by_pid == {7: 100, 9: 300, 8: 50}


def test_without_processes_their_memory_is_not_known(driver: Driver, reader: DeviceReader) -> None:
    driver.fail("nvmlDeviceGetComputeRunningProcesses", ERRORS["NOT_SUPPORTED"])
    found = one(reader)
    assert (found.memory_by_pid, found.gap) == (None, "")


def test_of_several_samples_of_a_process_the_peak_counts(
    driver: Driver, reader: DeviceReader
) -> None:
    driver.set(gpu0__process_use="7:30:1000,7:90:1001,7:10:1002")
    assert one(reader).by_pid == {7: 0.9}


def test_a_burst_between_two_looks_is_seen(driver: Driver, reader: DeviceReader) -> None:
    driver.set(gpu0__samples="1000:0,1200:77,1400:0")
    assert one(reader).use == 0.77


@pytest.mark.parametrize("name", ["NOT_SUPPORTED", "NO_PERMISSION", "FUNCTION_NOT_FOUND"])
def test_without_processes_the_level_is_the_device(
    driver: Driver, reader: DeviceReader, name: str
) -> None:
    driver.set(gpu0__use=40)
    driver.fail("nvmlDeviceGetProcessUtilization", ERRORS[name], 0)
    found = one(reader)
    assert (found.use, found.by_pid, reader.seen[FIRST].level) == (0.4, None, DEVICE)
    driver.fail("nvmlDeviceGetProcessUtilization", None, 0)
    reader.look()
    assert one(reader).by_pid == {}
    assert reader.seen[FIRST].level is PROCESS


def test_without_utilisation_the_level_is_cells_and_no_process_is_no_use(
    driver: Driver, reader: DeviceReader
) -> None:
    driver.set(gpu0__use=None)
    found = one(reader)
    assert (found.use, found.gap, reader.seen[FIRST].level) == (0.0, "", CELLS)
    driver.set(gpu0__processes="7:100")
    found = one(reader)
    assert (found.use, found.gap, reader.seen[FIRST].level) == (None, "no_utilisation", CELLS)


@pytest.mark.parametrize("name", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPowerUsage"])
def test_what_a_device_does_not_tell_is_left_out(
    driver: Driver, reader: DeviceReader, name: str
) -> None:
    driver.fail(name, ERRORS["NOT_SUPPORTED"], 0)
    found = one(reader)
    assert found.use == 0.0
    assert (found.memory is None) == (name == "nvmlDeviceGetMemoryInfo")
    assert (found.power is None) == (name == "nvmlDeviceGetPowerUsage")


@pytest.mark.parametrize("name", sorted(ERRORS.keys() - UNABLE))
def test_every_error_is_a_gap_and_never_a_zero(
    driver: Driver, reader: DeviceReader, name: str
) -> None:
    driver.fail("*", ERRORS[name], 0)
    found = one(reader)
    assert found.use is None
    assert found.gap == name.lower()
    driver.fail("*", None, 0)
    reader.look()
    assert [each.use for each in reader.read(NOW)] == [0.0, 0.0]


@pytest.mark.parametrize("name", sorted(UNABLE))
def test_a_device_that_answers_nothing_is_never_unused(
    driver: Driver, reader: DeviceReader, name: str
) -> None:
    driver.fail("*", ERRORS[name], 0)
    found = one(reader)
    assert (found.use, found.gap, reader.seen[FIRST].level) == (None, "no_utilisation", CELLS)


def test_without_a_driver_it_says_why_and_goes_on_when_it_comes(driver: Driver) -> None:
    driver.fail("nvmlInit", ERRORS["DRIVER_NOT_LOADED"])
    reader = DeviceReader(Library())
    reader.look()
    assert reader.read(NOW) == []
    assert reader.problem == "driver_not_loaded"
    driver.fail("nvmlInit", None)
    reader.look()
    assert [each.uuid for each in reader.read(NOW)] == [FIRST, SECOND]
    assert reader.problem == ""


def test_a_driver_without_gpus_says_so(driver: Driver) -> None:
    driver.keys = {"devices": "0"}
    driver.set()
    reader = DeviceReader(Library())
    reader.look()
    assert reader.problem == "the driver shows no GPU"


@pytest.fixture
def divided(driver: Driver, reader: DeviceReader) -> Driver:
    """The second card in MIG mode with two devices."""
    driver.set(gpu1__mig=2)
    for n in (0, 1):
        driver.set({f"1.mig{n}.uuid": f"MIG-{n}", f"1.mig{n}.gi": n + 3, f"1.mig{n}.name": "slice"})
        driver.set({f"1.mig{n}.memory_total": 5 * GIB, f"1.mig{n}.memory_used": n * GIB})
    reader.look()
    return driver


def test_mig_devices_are_read_instead_of_their_gpu(divided: Driver, reader: DeviceReader) -> None:
    found = {each.uuid: each for each in reader.read(NOW)}
    assert set(found) == {FIRST, "MIG-0", "MIG-1"}
    assert set(reader.seen) == {FIRST, SECOND, "MIG-0", "MIG-1"}
    assert (reader.seen["MIG-1"].parent, reader.seen["MIG-1"].level) == (SECOND, CELLS)
    assert (found["MIG-1"].use, found["MIG-1"].memory) == (0.0, GIB)
    divided.set({"1.mig1.processes": "7:100"})
    assert one(reader, "MIG-1").use is None
    assert one(reader, "MIG-0").use == 0.0


def test_gpm_measures_a_mig_device_where_the_card_has_it(
    divided: Driver, reader: DeviceReader
) -> None:
    divided.set({"1.gpm": 0, "1.mig0.gpm": 60, "1.mig1.gpm": 0, "1.mig0.processes": "7:1"})
    reader.look()
    assert one(reader, "MIG-0").gap == "no_utilisation"  # a figure needs two samples
    assert (one(reader, "MIG-0").use, one(reader, "MIG-1").use) == (0.6, 0.0)
    assert reader.seen["MIG-0"].level is DEVICE
    divided.fail("nvmlGpmMigSampleGet", ERRORS["GPU_IS_LOST"])
    assert one(reader, "MIG-0").gap == "gpu_is_lost"
    divided.fail("nvmlGpmMigSampleGet", ERRORS["NOT_SUPPORTED"])
    assert one(reader, "MIG-0").use is None
    assert reader.seen["MIG-0"].level is CELLS


def test_mig_devices_that_were_taken_apart_are_forgotten(
    divided: Driver, reader: DeviceReader
) -> None:
    divided.set(gpu1__mig=1)
    reader.look()
    assert set(reader.seen) == {FIRST, SECOND, "MIG-0"}
    divided.set(gpu1__mig=None)
    reader.look()
    assert {each.uuid for each in reader.read(NOW)} == {FIRST, SECOND}
