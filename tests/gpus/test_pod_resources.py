"""The kubelet is asked now and then, believed for a moment, and waited for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from gpulease.gpus.agent.pod_resources import BELIEVED, LIST_EVERY, PodResources
from gpulease.gpus.agent.wire import ContainerDevice
from gpulease.gpus.base import GPUInfo
from gpulease.gpus.reading import Seen
from tests.gpus.kubelet import Kubelet, serving


def seen(uuid: str, index: int = 0, parent: str = "", instance: int = 0) -> Seen:
    info = GPUInfo(uuid, index, "NVIDIA", 2**30, simulated=False)
    return Seen(info, None, parent=parent, instance=instance)


CARDS = {"GPU-a": seen("GPU-a"), "GPU-b": seen("GPU-b", 1)}
CARDS["MIG-c"] = seen("MIG-c", 0, "GPU-b", 7)
HELD = ContainerDevice("hub", "pod", "c", "nvidia.com/gpu", "GPU-a")


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with serving(tmp_path / "kubelet.sock") as found:
        yield found


@pytest.fixture
def client(kubelet: Kubelet) -> Iterator[PodResources]:
    found = PodResources(kubelet.path)
    yield found
    found.close()


def test_who_holds_what_is_told(kubelet: Kubelet, client: PodResources) -> None:
    claimed = ContainerDevice("hub", "other", "c", "", "gpu-0", "gpu.example", "node")
    replica = ContainerDevice("hub", "third", "c", "nvidia.com/gpu.shared", "GPU-b::3")
    kubelet.held = [HELD, claimed, replica, ContainerDevice("x", "y", "z", "rdma/hca", "mlx5_0")]
    client.refresh(0.0)
    assert client.holders(0.0, CARDS) == [HELD, claimed, replica]
    assert client.problem == ""


def test_it_is_asked_every_few_seconds_and_sooner_when_somebody_is_not_accounted_for(
    kubelet: Kubelet, client: PodResources
) -> None:
    for now in (0.0, 1.5, LIST_EVERY - 0.1):
        client.refresh(now)
    assert kubelet.asked == 1
    client.refresh(LIST_EVERY)
    assert kubelet.asked == 2
    client.refresh(LIST_EVERY + 0.5, soon=True)
    client.refresh(LIST_EVERY + 1.0, soon=True)
    assert kubelet.asked == 3


def test_while_it_is_away_its_last_word_stands_for_a_minute(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    client = PodResources(path)
    client.refresh(0.0)
    assert client.holders(0.0, CARDS) is None
    assert "no socket" in client.problem
    with serving(path) as kubelet:
        kubelet.held = [HELD]
        client.refresh(10.0)
        assert client.holders(10.0, CARDS) == [HELD]
    client.refresh(20.0)
    assert client.problem
    assert client.holders(10.0 + BELIEVED, CARDS) == [HELD]
    assert client.holders(10.1 + BELIEVED, CARDS) is None
    with serving(path):  # a kubelet that was restarted
        client.refresh(100.0)
        assert client.holders(100.0, CARDS) == []
        assert client.problem == ""
    client.close()


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED]
)
def test_a_refusal_is_said(kubelet: Kubelet, client: PodResources, code: grpc.StatusCode) -> None:
    kubelet.code = code
    client.refresh(0.0)
    assert code.name.lower() in client.problem
    assert client.holders(0.0, CARDS) is None


def test_bytes_that_are_no_answer_are_said(kubelet: Kubelet, client: PodResources) -> None:
    kubelet.raw = b"\xff" * 20
    client.refresh(0.0)
    assert client.problem
    assert client.holders(0.0, CARDS) is None


def test_a_device_that_its_plugin_withdrew_is_not_offered(
    kubelet: Kubelet, client: PodResources
) -> None:
    assert client.offered("GPU-a", CARDS), "nothing is known yet"
    kubelet.offered = [("nvidia.com/gpu", "GPU-a::0"), ("nvidia.com/gpu", "GPU-b")]
    client.refresh(0.0)
    assert [client.offered(each, CARDS) for each in CARDS] == [True, True, True]
    kubelet.offered = [("nvidia.com/gpu", "GPU-b")]
    client.refresh(100.0)
    assert [client.offered(each, CARDS) for each in CARDS] == [False, True, True]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("nvidia0", "GPU-a"),
        ("nvidia1", "GPU-b"),
        ("nvidia0/vgpu2", "GPU-a::2"),
        ("nvidia1/gi7", "MIG-c"),
        ("nvidia1/gi7/vgpu0", "MIG-c::0"),
        ("nvidia9", "nvidia9"),
        ("nvidia1/gi9", "nvidia1/gi9"),
    ],
)
def test_a_plugin_that_counts_devices_is_understood(
    kubelet: Kubelet, client: PodResources, device: str, expected: str
) -> None:
    kubelet.held = [ContainerDevice("hub", "pod", "c", "nvidia.com/gpu", device)]
    client.refresh(0.0)
    found = client.holders(0.0, CARDS)
    assert found is not None
    assert [each.device for each in found] == [expected]
