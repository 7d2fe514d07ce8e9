"""When a batch is due, and what it says of each second."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpulease.gpus.agent.batches import CALM, Gathering, batch_of, second_of, unaccounted
from gpulease.gpus.agent.cgroups import NODE
from gpulease.gpus.agent.health import Incidents
from gpulease.gpus.agent.wire import ContainerDevice
from gpulease.gpus.base import GPUInfo
from gpulease.gpus.reading import DeviceReading, Seen
from gpulease.policy.model import EvidenceLevel
from gpulease.protocol.agents import AgentPost
from gpulease.service.schemas.bodies import AgentPostBody

NOW = datetime(2026, 5, 4, 12, 0, 0, 123456, tzinfo=UTC)
PLACES = {1: "uid-1", 2: "uid-1", 3: "uid-2", 4: NODE, 5: None}


def reading(use: float | None = 0.0, **more: Any) -> DeviceReading:
    return DeviceReading("GPU-1", NOW, use, more.pop("gap", ""), **more)


def second(
    use: float | None = 0.0, level: EvidenceLevel = EvidenceLevel.PROCESS, **more: Any
) -> Any:
    return second_of(reading(use, **more), level, PLACES.__getitem__)


def test_the_use_of_processes_is_summed_up_by_pod() -> None:
    found = second(0.9, by_pid={1: 0.2, 2: 0.3, 3: 0.1, 4: 0.05, 5: 0.01})
    assert found["pods"] == {"uid-1": 0.5, "uid-2": 0.1}
    assert (found["others"], found["unplaced"]) == (0.05, 0.01)
    assert second(0.9, by_pid={1: 0.9, 2: 0.9})["pods"] == {"uid-1": 1.0}


def test_the_memory_of_processes_is_summed_up_by_pod_at_every_level() -> None:
    held = {1: 100, 2: 50, 3: 7, 4: 9, 5: 11}
    for level in EvidenceLevel:
        found = second(0.0, level, memory_by_pid=held)
        assert found["memories"] == {"uid-1": 150, "uid-2": 7}
    assert "memories" not in second(memory_by_pid={4: 9})


def test_what_is_not_known_is_left_out() -> None:
    assert second() == {"at": "2026-05-04T12:00:00.123+00:00", "device": "GPU-1", "use": 0.0}
    assert second(None, gap="gpu_is_lost")["gap"] == "gpu_is_lost"
    assert "pods" not in second(0.5, EvidenceLevel.DEVICE, by_pid={1: 0.5})
    assert second(memory=5, power=60.04)["power"] == 60.0


def due(gathering: Gathering, *, held: bool = True) -> list[int]:
    """Return the seconds of a minute at which a batch is posted."""
    found = []
    for now in range(60):
        if gathering.due(float(now), held=held):
            gathering.take(float(now))
            found.append(now)
    return found


def test_a_batch_comes_every_ten_seconds_and_more_often_while_somebody_holds_a_device() -> None:
    assert due(Gathering(), held=False) == [0, 10, 20, 30, 40, 50]
    assert due(Gathering(), held=True) == list(range(0, 60, 5))


@pytest.mark.parametrize(
    ("why", "before", "after", "at_once"),
    [
        ("turned busy", second(0.0), second(0.5), True),
        ("turned idle", second(0.5), second(0.0), True),
        ("another pod", second(0.5, by_pid={1: 0.5}), second(0.5, by_pid={3: 0.5}), True),
        ("still busy", second(0.5), second(0.6), False),
        ("still idle", second(0.0), second(0.02), False),
        ("a gap is no change", second(0.5), second(None, gap="timeout"), False),
    ],
)
def test_a_change_is_told_at_once(why: str, before: Any, after: Any, at_once: bool) -> None:
    gathering = Gathering()
    gathering.add([before])
    gathering.take(100.0)
    gathering.add([after])
    assert gathering.due(100.0 + CALM, held=False) is at_once, why
    assert not gathering.due(100.0 + CALM - 0.1, held=False)


def test_after_a_gap_the_old_state_is_no_change() -> None:
    gathering = Gathering()
    for use in (0.5, None, 0.5):
        gathering.add([second(use, gap="" if use else "timeout")])
        if use and len(gathering.take(0.0)) == 1:
            continue
    assert not gathering.due(CALM, held=False)


def test_a_fault_is_told_at_once_and_seconds_are_told_once() -> None:
    gathering = Gathering()
    gathering.add([second()])
    assert len(gathering.take(0.0)) == 1
    gathering.add([second()], news=True)
    assert gathering.due(CALM, held=False)
    assert len(gathering.take(CALM)) == 1
    assert gathering.take(CALM) == []


def test_something_used_that_nobody_holds_is_a_reason_to_ask() -> None:
    held = [ContainerDevice("n", "p", "c", "r", "GPU-1::2")]
    assert unaccounted([reading(0.5)], None)
    assert unaccounted([reading(0.5)], [])
    assert not unaccounted([reading(0.5)], held)
    assert not unaccounted([reading(0.0), reading(None)], [])


@pytest.mark.parametrize(
    "holders", [None, [], [ContainerDevice("n", "p", "c", "", "gpu-0", "d", "pool")]]
)
def test_a_batch_is_what_the_service_takes(holders: Any) -> None:
    incidents = Incidents()
    incidents.happened("GPU-1", "xid", NOW, 79)
    incidents.lasts("GPU-1", "gpu_lost", NOW, present=True)
    info = GPUInfo("GPU-1", 0, "NVIDIA", 2**34, simulated=False)
    batch = batch_of(
        NOW,
        [
            second(0.5, by_pid={1: 0.2}, memory=1, power=2.0, memory_by_pid={1: 5}),
            second(None, gap="timeout"),
        ],
        seen={"GPU-1": Seen(info, None)},
        holders=holders,
        incidents=incidents,
        offered=lambda _: False,
        problem="x" * 600,
    )
    batch["sequence"] = 1
    post: AgentPost = {
        "protocol": "1.0",
        "run": "12345678",
        "sent": batch["at"],
        "batches": [batch],
    }
    taken = AgentPostBody.model_validate(post).root["batches"][0]
    assert [each["kind"] for each in taken["devices"][0]["incidents"]] == ["xid", "gpu_lost"]
    assert not taken["devices"][0]["offered"]
    assert (taken["holders"] is None) == (holders is None)
