"""Every NVML error is a gap with its reason, never a zero; the library is loaded lazily."""

from __future__ import annotations

from typing import Any

import pytest

from gpulease.gpus.nvml import LOST_GAPS, NVMLProbe
from tests.gpus.driver import GIB, Card, Driver

ERRORS = {name: getattr(Driver, name) for name in vars(Driver) if name.startswith("NVML_ERROR_")}


def opened(*cards: Card) -> tuple[Driver, NVMLProbe]:
    driver = Driver(*cards)
    probe = NVMLProbe(driver.load)
    probe.inventory()
    return driver, probe


def test_nothing_is_loaded_before_the_first_use() -> None:
    driver = Driver(Card("a"))
    probe = NVMLProbe(driver.load)
    assert driver.loaded == 0
    probe.inventory()
    probe.sample()
    assert (driver.loaded, driver.initialised) == (1, 1)
    probe.close()
    assert driver.initialised == 0
    probe.close()


def test_the_inventory_describes_each_card() -> None:
    _, probe = opened(Card("GPU-a"), Card("GPU-b"))
    first, second = probe.inventory()
    assert (first.uuid, first.index, first.name, first.memory) == (
        "GPU-a",
        0,
        "NVIDIA Test",
        16 * GIB,
    )
    assert (first.compute_capability, first.ecc, first.simulated) == ((9, 0), True, False)
    assert second.index == 1


def test_what_a_card_cannot_say_is_unknown() -> None:
    errors = {
        "nvmlDeviceGetEccMode": Driver.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetCudaComputeCapability": Driver.NVML_ERROR_NOT_SUPPORTED,
    }
    _, probe = opened(Card("a", errors=errors))
    (info,) = probe.inventory()
    assert (info.ecc, info.compute_capability) == (None, None)


@pytest.mark.parametrize(
    "code", [Driver.NVML_ERROR_LIBRARY_NOT_FOUND, Driver.NVML_ERROR_DRIVER_NOT_LOADED]
)
def test_without_a_driver_there_is_no_gpu_and_the_reason_is_said(code: int) -> None:
    driver = Driver(Card("a"))
    driver.errors["nvmlInit"] = code
    probe = NVMLProbe(driver.load)
    assert probe.inventory() == []
    assert probe.sample() == []
    assert probe.problem in {"library_not_found", "driver_not_loaded"}


def test_without_the_library_there_is_no_gpu() -> None:
    def missing() -> Any:
        raise ImportError("no module", name="pynvml")

    probe = NVMLProbe(missing)
    assert probe.inventory() == []
    assert "nvidia-ml-py" in probe.problem


def test_utilisation_is_the_peak_since_the_last_call() -> None:
    card = Card("a", samples=[(10, 5), (20, 80), (30, 0)])
    _, probe = opened(card)
    assert probe.sample()[0].utilisation == 0.8
    card.samples.append((40, 7))
    assert probe.sample()[0].utilisation == 0.07


def test_a_sample_tells_memory_and_processes() -> None:
    _, probe = opened(Card("a", rate=0, compute=(7, 3), graphics=(3,)))
    (sample,) = probe.sample()
    assert (sample.memory_used, sample.pids, sample.gap) == (GIB, (3, 7), "")


@pytest.mark.parametrize("name", ["NOT_SUPPORTED", "NOT_FOUND", "NO_DATA"])
def test_where_there_are_no_samples_the_rates_are_read(name: str) -> None:
    code = getattr(Driver, f"NVML_ERROR_{name}")
    _, probe = opened(Card("a", rate=42, errors={"nvmlDeviceGetSamples": code}))
    assert probe.sample()[0].utilisation == 0.42


def test_no_new_samples_means_the_rates_are_read_not_the_old_peak() -> None:
    card = Card("a", samples=[(10, 90)], rate=3)
    _, probe = opened(card)
    assert probe.sample()[0].utilisation == 0.9
    assert probe.sample()[0].utilisation == 0.03


def test_a_process_list_that_is_not_readable_leaves_utilisation_readable() -> None:
    errors = {"nvmlDeviceGetGraphicsRunningProcesses": Driver.NVML_ERROR_NOT_SUPPORTED}
    _, probe = opened(Card("a", rate=9, compute=(5,), errors=errors))
    (sample,) = probe.sample()
    assert (sample.utilisation, sample.pids) == (0.09, (5,))


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_error_is_a_gap_with_its_reason_and_others_are_read(name: str) -> None:
    broken = Card("broken", errors={})
    driver, probe = opened(broken, Card("good", rate=50))
    broken.errors["*"] = ERRORS[name]
    bad, good = probe.sample()
    assert bad.utilisation is None
    assert bad.gap == name.removeprefix("NVML_ERROR_").lower()
    if probe.problem == "":
        assert good.utilisation == 0.5
    broken.errors.clear()
    assert [each.utilisation for each in probe.sample()] == [0.0, 0.5]
    assert driver.initialised >= 1


@pytest.mark.parametrize("name", ["GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND"])
def test_a_lost_device_is_said_to_be_lost_and_stays_in_the_inventory(name: str) -> None:
    card = Card("a")
    _, probe = opened(card)
    card.errors["*"] = ERRORS[f"NVML_ERROR_{name}"]
    (sample,) = probe.sample()
    assert sample.gap in LOST_GAPS
    assert [info.uuid for info in probe.inventory()] == ["a"]


def test_a_driver_that_comes_back_is_initialised_again() -> None:
    driver, probe = opened(Card("a"))
    driver.cards[0].errors["*"] = Driver.NVML_ERROR_UNINITIALIZED
    assert probe.sample()[0].gap == "uninitialized"
    driver.errors["nvmlInit"] = Driver.NVML_ERROR_DRIVER_NOT_LOADED
    assert probe.sample()[0].gap == "driver_not_loaded"
    driver.errors.clear()
    driver.cards[0].errors.clear()
    probe.inventory()
    assert probe.sample()[0].utilisation == 0.0


@pytest.mark.gpu
def test_a_real_gpu_is_found_and_read() -> None:
    probe = NVMLProbe()
    infos = probe.inventory()
    assert infos, probe.problem
    assert all(info.uuid.startswith("GPU-") and info.memory > 0 for info in infos)
    samples = probe.sample()
    assert [each.uuid for each in samples] == [info.uuid for info in infos]
    assert all(each.gap or 0 <= (each.utilisation or 0) <= 1 for each in samples)
    probe.close()
