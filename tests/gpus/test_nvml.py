"""Every NVML error is a gap with its reason, never a zero; the library is loaded lazily."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from gpulease.gpus.driver import LOST_GAPS, UNABLE, say
from gpulease.gpus.nvml import NVMLProbe
from tests.gpus.stand_in import GIB, Driver

pytestmark = pytest.mark.compiler

ERRORS = {
    name.removeprefix("NVML_ERROR_"): code
    for name, code in vars(pynvml).items()
    if name.startswith("NVML_ERROR_")
}
FIRST, SECOND = (f"GPU-0000000{n}-1111-2222-3333-444444444444" for n in (0, 1))


@pytest.fixture
def probe(driver: Driver) -> Iterator[NVMLProbe]:
    found = NVMLProbe()
    found.inventory()
    yield found
    driver.keys = {"devices": "0"}
    driver.set()
    found.close()


def test_nothing_is_loaded_before_the_first_use(driver: Driver) -> None:
    loaded = []

    def load() -> Any:
        loaded.append(1)
        return pynvml

    probe = NVMLProbe(load)
    assert loaded == []
    probe.inventory()
    probe.sample()
    assert loaded == [1]
    probe.close()
    probe.close()


def test_the_inventory_describes_each_card(probe: NVMLProbe) -> None:
    first, second = probe.inventory()
    assert (first.uuid, first.index, first.name) == (FIRST, 0, "NVIDIA Test")
    assert first.memory == 16 * GIB
    assert (first.compute_capability, first.ecc, first.simulated) == ((9, 0), True, False)
    assert second.index == 1


def test_what_a_card_cannot_say_is_unknown(driver: Driver, probe: NVMLProbe) -> None:
    driver.set(gpu0__ecc=None, gpu0__major=None)
    info = probe.inventory()[0]
    assert (info.ecc, info.compute_capability) == (None, None)


@pytest.mark.parametrize("name", ["LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED"])
def test_without_a_driver_there_is_no_gpu_and_the_reason_is_said(driver: Driver, name: str) -> None:
    driver.fail("nvmlInit", ERRORS[name])
    probe = NVMLProbe()
    assert probe.inventory() == []
    assert probe.sample() == []
    assert probe.problem == name.lower()


def test_without_the_library_there_is_no_gpu() -> None:
    def missing() -> Any:
        raise ImportError("no module", name="pynvml")

    probe = NVMLProbe(missing)
    assert probe.inventory() == []
    assert "nvidia-ml-py" in say(probe.problem)


def test_utilisation_is_the_peak_since_the_last_call(driver: Driver, probe: NVMLProbe) -> None:
    driver.set(gpu0__samples="10:5,20:80,30:0")
    assert probe.sample()[0].utilisation == 0.8
    driver.set(gpu0__samples="10:5,20:80,30:0,40:7")
    assert probe.sample()[0].utilisation == 0.07


def test_a_sample_tells_memory_and_processes(driver: Driver, probe: NVMLProbe) -> None:
    driver.set(gpu0__processes="7:100", gpu0__graphics="3:5")
    sample = probe.sample()[0]
    assert (sample.memory_used, sample.pids, sample.gap) == (GIB, (3, 7), "")


@pytest.mark.parametrize("name", ["NOT_SUPPORTED", "NOT_FOUND", "NO_DATA"])
def test_where_there_are_no_samples_the_rates_are_read(
    driver: Driver, probe: NVMLProbe, name: str
) -> None:
    driver.set(gpu0__rate=42)
    driver.fail("nvmlDeviceGetSamples", ERRORS[name], 0)
    assert probe.sample()[0].utilisation == 0.42


def test_no_new_samples_means_the_rates_are_read_not_the_old_peak(
    driver: Driver, probe: NVMLProbe
) -> None:
    driver.set(gpu0__samples="10:90", gpu0__rate=3)
    assert probe.sample()[0].utilisation == 0.9
    assert probe.sample()[0].utilisation == 0.03


def test_a_process_list_that_is_not_readable_leaves_utilisation_readable(
    driver: Driver, probe: NVMLProbe
) -> None:
    driver.set(gpu0__use=9, gpu0__processes="5:1")
    driver.fail("nvmlDeviceGetGraphicsRunningProcesses", ERRORS["NOT_SUPPORTED"], 0)
    sample = probe.sample()[0]
    assert (sample.utilisation, sample.pids) == (0.09, (5,))


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_error_is_a_gap_with_its_reason_and_others_are_read(
    driver: Driver, probe: NVMLProbe, name: str
) -> None:
    driver.set(gpu1__use=50)
    driver.fail("*", ERRORS[name], 0)
    bad, good = probe.sample()
    assert bad.utilisation is None
    assert bad.gap == ("no_utilisation" if name.lower() in UNABLE else name.lower())
    if probe.problem == "":
        assert good.utilisation == 0.5
    driver.fail("*", None, 0)
    assert [each.utilisation for each in probe.sample()] == [0.0, 0.5]


@pytest.mark.parametrize("name", ["GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND"])
def test_a_lost_device_is_said_to_be_lost_and_stays_in_the_inventory(
    driver: Driver, probe: NVMLProbe, name: str
) -> None:
    driver.fail("*", ERRORS[name], 0)
    assert probe.sample()[0].gap in LOST_GAPS
    assert [info.uuid for info in probe.inventory()] == [FIRST, SECOND]


def test_a_driver_that_comes_back_is_initialised_again(driver: Driver, probe: NVMLProbe) -> None:
    driver.fail("*", ERRORS["UNINITIALIZED"], 0)
    assert probe.sample()[0].gap == "uninitialized"
    driver.fail("nvmlInit", ERRORS["DRIVER_NOT_LOADED"])
    assert probe.sample()[0].gap == "driver_not_loaded"
    driver.fail("nvmlInit", None)
    driver.fail("*", None, 0)
    assert probe.sample()[0].utilisation == 0.0
