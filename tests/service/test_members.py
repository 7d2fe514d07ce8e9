"""A lease whose nodes each have a supervisor is connected once all of these are."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpulease.policy.model import Lease
from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
from tests.policy.build import active
from tests.service.kit import z85_key


@dataclass
class Wire:
    """A connected supervisor."""

    told: list[dict[str, Any]] = field(default_factory=list)
    cut: bool = False

    def tell(self, message: Any) -> None:
        self.told.append(message)

    def hang_up(self) -> None:
        self.cut = True

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.told if each["type"] == kind]


def hello(rank: int, **more: str) -> Any:
    key = z85_key()
    said = {"type": "hello", "address": f"tcp://10.0.0.{rank}:8890", "public_key": key}
    return {**said, "protocol": "1.0", **more}


def admitted(wire: Wire) -> Any:
    return {"type": "admitted", "client_key": wire.of("admit")[-1]["client_key"]}


@pytest.fixture
def lease() -> Lease:
    return replace(active(1), count=6, nodes=3)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_all_are_introduced_when_the_last_one_is_there(
    lease: Lease, order: tuple[int, ...]
) -> None:
    links, wires = SupervisorConnections(lambda: None), [Wire() for _ in range(3)]
    said = [hello(rank) for rank in range(3)]
    said[0]["launch_key"] = z85_key()
    for rank in order:
        state = links.state(lease.id)
        assert state is None or not state.connected
        if rank:
            assert links.joined(lease, rank, wires[rank], said[rank])
        else:
            assert links.connected(lease, wires[0], said[0])
    admits = [admitted(wires[rank]) for rank in (1, 2)]
    for rank, answer in enumerate(admits, 1):
        state = links.state(lease.id)
        assert state is not None
        assert not state.connected, "the first one would be refused"
        assert not wires[0].of("nodes")
        links.heard_member(lease, rank, answer)
    state = links.state(lease.id)
    assert state is not None
    assert state.connected
    where = [{"address": said[n]["address"], "public_key": said[n]["public_key"]} for n in (1, 2)]
    assert [each["nodes"] for each in wires[0].of("nodes")] == [where]
    for member in wires[1:]:
        assert [each["client_key"] for each in member.of("admit")] == [said[0]["launch_key"]]

    # Its channel may break and come back; the one that was there before is cut.
    links.lost(lease.id, wires[1])
    again = Wire()
    assert links.joined(lease, 1, again, said[1])
    assert not again.of("admit"), "its process has the key"
    links.heard_member(lease, 1, admits[0])
    assert links.joined(lease, 1, Wire(), said[1])
    assert again.cut
    assert links.state(lease.id) == state
    assert len(wires[0].of("nodes")) == 1
    back = Wire()
    assert links.connected(lease, back, said[0])
    assert [each["nodes"] for each in back.of("nodes")] == [where]


def test_one_that_comes_with_another_key_is_refused(lease: Lease) -> None:
    links, first = SupervisorConnections(lambda: None), hello(0, launch_key=z85_key())
    assert links.connected(lease, Wire(), first)
    assert links.joined(lease, 1, Wire(), hello(1))
    assert not links.joined(lease, 1, Wire(), hello(1))
    assert [each.reason for each in links.alerts()] == ["second_supervisor"]


def test_those_of_an_earlier_start_count_for_nothing(lease: Lease) -> None:
    links = SupervisorConnections(lambda: None)
    for rank in (1, 2):
        assert links.joined(lease, rank, Wire(), hello(rank))
    later = replace(lease, attempt=lease.attempt + 1)
    assert links.connected(later, Wire(), hello(0, launch_key=z85_key()))
    for rank in (1, 2):
        state = links.state(lease.id)
        assert state is not None
        assert not state.connected
        wire = Wire()
        assert links.joined(later, rank, wire, hello(rank))
        links.heard_member(later, rank, admitted(wire))
    state = links.state(lease.id)
    assert state is not None
    assert state.connected
    links.forget(set())


def test_on_one_machine_one_supervisor_is_all_there_are(lease: Lease) -> None:
    links, wire = SupervisorConnections(lambda: None), Wire()
    assert links.connected(lease, wire, hello(0))
    state = links.state(lease.id)
    assert state is not None
    assert state.connected
    assert not wire.of("nodes")
