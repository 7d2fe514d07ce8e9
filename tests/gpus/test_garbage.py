"""What a driver says is never trusted: each reading is dropped or true, and the rest continues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpulease.gpus import driver as nvidia
from gpulease.gpus.agent.batches import batch_of, second_of
from gpulease.gpus.agent.health import Health, Incidents
from gpulease.gpus.driver import Library
from gpulease.gpus.nvml import NVMLProbe
from gpulease.gpus.reading import DeviceReader
from gpulease.gpus.simulated import SimulatedProbe
from gpulease.policy.model import EvidenceLevel
from gpulease.service.schemas.bodies import AgentPostBody
from gpulease.service.settings.options import Options, choose_probe
from tests.gpus.stand_in import GIB, Driver
from tests.gpus.test_nvml import ERRORS, FIRST, SECOND
from tests.gpus.test_reading import divided, one, reader
from tests.helpers import draws

pytestmark = pytest.mark.compiler

__all__ = ["divided", "reader"]  # fixtures
#: What drivers gave where they had nothing to say, and what lies beside the bounds.
FIGURES = [0, 1, 99, 100, 101, 2**22, 2**22 + 1, 2**31, 2**32 - 1, 2**46 + 1, 2**63, 2**64 - 1]
FAR = 4_102_444_800_000_000  # the year 2100, microseconds


def ago(seconds: float) -> int:
    return int((time.time() - seconds) * 1e6)


def figures(*more: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([None, *FIGURES, *more])


def rows(*parts: Any) -> st.SearchStrategy[str]:
    stamps = [0, 1, 2**32 - 1, FAR, 2**64 - 1]
    each = st.tuples(*(st.sampled_from([*FIGURES, *(stamps if part else ())]) for part in parts))
    return st.lists(each.map(lambda row: ":".join(map(str, row))), max_size=4).map(",".join)


ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from([None, "", "\udcff\udcfe", "x" * 90, "NVIDIA\x07GB10"]),
        "memory_total": figures(),
        "memory_used": figures(),
        "power": figures(),
        "rate": figures(),
        "use": figures(),
        "samples": rows(True, False),
        "process_use": rows(False, False, True),
        "processes": rows(False, False),
        "graphics": rows(False, False),
        "remapped": st.sampled_from(["0:0:0:0", "4294967295:0:0:4294967295"]),
        "ecc_double": figures(),
        "major": figures(),
        "mig": st.sampled_from([None, 0, 2]),
        "mig0.uuid": st.sampled_from(["MIG-0", "", "\udcff"]),
        "mig0.gi": figures(),
        "mig0.gpm": figures(),
        "mig0.memory_total": figures(),
        "gpm": figures(),
        "error.nvmlDeviceGetMemoryInfo": st.sampled_from([3, 999]),
        "error.nvmlDeviceGetName": st.sampled_from([3, 999]),
        "error.nvmlDeviceGetProcessUtilization": st.sampled_from([3, 999]),
        "error.nvmlDeviceGetComputeRunningProcesses": st.sampled_from([3, 999]),
    },
)


@given(ANSWERS)
@settings(max_examples=draws(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_answer_costs_a_node_its_batch_or_the_other_cards_their_use(
    driver: Driver, answers: dict[str, Any]
) -> None:
    """Whatever one card answers, the service takes the whole batch, and the other card is read."""
    driver.keys = {}
    for index in (0, 1):
        driver._describe(index)
    driver.keys["devices"] = "2"
    driver.set({f"0.{name}": found for name, found in answers.items()} | {"1.use": 40})
    library, now = Library(), datetime.now(UTC)
    reader, incidents = DeviceReader(library), Incidents()
    reader.look()
    readings = [*reader.read(now), *reader.read(now)]
    Health(incidents).check(library.present, reader.seen, now)
    assert {each.use for each in readings if each.uuid == SECOND} == {0.4}
    assert all(each.use is None or 0 <= each.use <= 1 for each in readings)
    batch = batch_of(
        now,
        [second_of(each, reader.seen[each.uuid].level, lambda pid: f"p{pid}") for each in readings],
        seen=reader.seen,
        holders=[],
        incidents=incidents,
        offered=lambda _: True,
        problem=reader.problem,
    )
    batch["sequence"] = 1
    post = {"protocol": "1", "run": "12345678", "sent": now.isoformat(), "batches": [batch]}
    AgentPostBody.model_validate(post)
    assert incidents.all(now) == []
    library.close()


@pytest.mark.parametrize(
    "name",
    ["MemoryInfo", "Name", "EccMode", "CudaComputeCapability", "PowerUsage", "MigMode"],
)
@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "UNKNOWN", "FUNCTION_NOT_FOUND", "MEMORY"])
def test_only_the_identity_of_a_card_is_needed(driver: Driver, name: str, error: str) -> None:
    driver.fail(f"nvmlDeviceGet{name}", ERRORS[error], 0)
    driver.set(gpu0__use=40)
    probe = NVMLProbe()
    assert [each.uuid for each in probe.inventory()] == [FIRST, SECOND]
    assert [each.utilisation for each in probe.sample()] == [0.4, 0.0]
    assert probe.inventory()[0].memory == (0 if name == "MemoryInfo" else 16 * GIB)
    probe.close()


def test_a_card_without_an_identity_costs_no_other_one(driver: Driver) -> None:
    driver.set(gpu0__uuid="")
    probe = NVMLProbe()
    assert [each.uuid for each in probe.inventory()] == [SECOND]
    probe.close()


@pytest.mark.parametrize(
    ("garbage", "then", "use"),
    [
        (f"{FAR}:100", "{now}:7", 0.07),
        ("{ago}:4294967295", "{now}:7", 0.07),
        (f"{2**64 - 1}:3,{{ago}}:90", "{now}:7", 0.07),
    ],
)
def test_a_bad_sample_is_dropped_and_silences_no_later_one(
    driver: Driver, reader: DeviceReader, garbage: str, then: str, use: float
) -> None:
    driver.set(gpu0__samples=garbage.format(ago=ago(2)), gpu0__rate=2)
    first = one(reader).use
    assert first in {0.02, 0.9}
    driver.set(gpu0__samples=then.format(now=ago(0)))
    assert one(reader).use == use


@pytest.mark.parametrize(
    ("rows", "by_pid"),
    [
        ("0:80:{now}", None),
        ("7:4294967295:{now}", None),
        (f"7:80:{FAR}", None),
        ("4294967295:80:{now}", None),
        (f"7:30:{{now}},0:80:{{now}},9:4294967295:{{now}},8:5:{FAR}", {7: 0.3}),
    ],
)
def test_a_bad_row_of_a_process_is_dropped_and_silences_no_later_one(
    driver: Driver, reader: DeviceReader, rows: str, by_pid: dict[int, float] | None
) -> None:
    driver.set(gpu0__process_use=rows.format(now=ago(1)))
    assert one(reader).by_pid == by_pid
    driver.set(gpu0__process_use=f"7:60:{ago(0)}")
    assert one(reader).by_pid == {7: 0.6}


def test_a_clock_that_was_set_back_silences_nothing(driver: Driver, reader: DeviceReader) -> None:
    one(reader)
    reader.seen[FIRST].last_sample = reader.seen[FIRST].last_process = FAR
    driver.set(gpu0__samples=f"{ago(-1)}:80", gpu0__process_use=f"7:60:{ago(-1)}")
    found = one(reader)
    assert (found.use, found.by_pid) == (0.8, {7: 0.6})


@pytest.mark.parametrize("rate", [101, 4294967295])
def test_a_rate_that_cannot_be_true_is_a_gap_and_never_busy(
    driver: Driver, reader: DeviceReader, rate: int
) -> None:
    driver.set(gpu0__use=None, gpu0__rate=rate, gpu0__power=2**32 - 1)
    found = one(reader)
    assert (found.use, found.gap, found.power) == (None, "implausible", None)
    assert reader.seen[FIRST].level is EvidenceLevel.PROCESS


def test_a_process_of_no_number_is_nobody_and_the_card_is_not_known_to_be_free(
    driver: Driver, reader: DeviceReader
) -> None:
    driver.set(gpu0__processes="0:100", gpu0__use=None)
    found = one(reader)
    assert (found.pids, found.use) == (None, None)
    driver.set(gpu0__processes=f"0:100,7:{2**63}")
    assert one(reader).pids == (7,)
    assert one(reader).memory_by_pid == {}


# Which devices a machine offers.


@pytest.mark.parametrize("name", ["DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "UNKNOWN", ""])
@pytest.mark.parametrize("simulate", [False, True])
def test_a_machine_with_a_driver_shows_simulated_gpus_only_by_name(
    driver: Driver, name: str, simulate: bool
) -> None:
    if name:
        driver.fail("nvmlInit", ERRORS[name])
    else:
        driver.set(devices=0)
    probe = choose_probe(options(simulate=simulate))
    assert isinstance(probe, SimulatedProbe if simulate else NVMLProbe)
    assert bool(probe.problem) is not simulate
    assert len(probe.inventory()) == (2 if simulate else 0)
    probe.close()


@pytest.mark.parametrize("module", [False, True])
def test_without_the_library_the_kernel_module_tells(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: bool
) -> None:
    driver.fail("nvmlInit", ERRORS["LIBRARY_NOT_FOUND"])
    monkeypatch.setattr(nvidia, "KERNEL_MODULE", tmp_path / "version")
    if module:
        nvidia.KERNEL_MODULE.touch()
    probe = choose_probe(options(simulate=False))
    assert isinstance(probe, NVMLProbe if module else SimulatedProbe)
    probe.close()


def options(*, simulate: bool) -> Options:
    return Options("", 0, "/", "/hub/", "sqlite://", gpus=2, simulate=simulate)


@pytest.fixture
def mig(driver: Driver, divided: Driver) -> Iterator[NVMLProbe]:
    probe = NVMLProbe()
    probe.inventory()
    yield probe
    probe.close()


def test_mig_devices_are_offered_and_judged_or_said_not_to_be_measured(
    driver: Driver, mig: NVMLProbe
) -> None:
    assert [each.uuid for each in mig.inventory()] == [FIRST, "MIG-0", "MIG-1"]
    driver.set({"1.mig0.processes": "7:100"})
    found = {each.uuid: each for each in mig.sample()}
    assert (found["MIG-0"].utilisation, found["MIG-0"].pids) == (None, (7,))
    assert (found["MIG-1"].utilisation, found["MIG-1"].level) == (0.0, EvidenceLevel.CELLS)
    first, second = mig.limits()
    assert first.startswith("MIG-0 (slice): ")
    assert "when no GPU cell runs" in second
    driver.set({"1.gpm": 0, "1.mig0.gpm": 60, "1.mig1.gpm": 0})
    mig.inventory()
    mig.sample()
    found = {each.uuid: each for each in mig.sample()}
    assert (found["MIG-0"].utilisation, found["MIG-0"].level) == (0.6, None)
    assert mig.limits() == []


def test_a_card_in_mig_mode_without_devices_says_what_to_do(driver: Driver) -> None:
    driver.set(gpu1__mig=0)
    probe = NVMLProbe()
    assert [each.uuid for each in probe.inventory()] == [FIRST]
    assert "nvidia-smi mig" in probe.limits()[0]
    probe.close()


def test_every_way_to_lose_the_driver_says_what_to_do(driver: Driver) -> None:
    for reason in (*nvidia.LOST_GAPS, *nvidia.STALE_CONTAINER, "driver_not_loaded"):
        words = nvidia.say(reason)
        assert any(each in words for each in ("reboot", "Restart", "drain", "Drain")), reason
    assert nvidia.say("") == ""
