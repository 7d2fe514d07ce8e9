"""The nodes of a lease, and what each process on them is told, in torchrun's words.

A node is a part of a lease's GPUs with the address of their machine.  On one machine several nodes
share its address; a node on another machine is reached through the supervisor that it has there.
Pure: no process, no socket.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from gpulease.protocol.supervisor import NodeAddress


@dataclass(frozen=True)
class Node:
    """One node: ``gpus`` is 0 where their number is not known, ``devices`` None where all count."""

    address: str = "127.0.0.1"
    gpus: int = 0
    devices: str | None = None  # for CUDA_VISIBLE_DEVICES
    supervisor: str = ""  # where it hears what is launched: tcp://host:port; "" is this machine
    server_key: str = ""  # of that one (Z85)


def nodes_of(devices: str | None, count: int, nodes: int) -> list[Node]:
    """Return the nodes of a lease on this machine, in the order of their rank.

    Args:
        devices: of all nodes, with commas between; "" for simulated ones, None for all there are.
        count: how many GPUs the lease has, 0 if that is not known.
        nodes: into so many equal parts they are divided.
    """
    if nodes == 1 or devices is None:
        return [Node(gpus=count, devices=devices)]
    each, names = count // nodes, devices.split(",")
    return [
        Node(gpus=each, devices=",".join(names[rank * each : (rank + 1) * each]))
        for rank in range(nodes)
    ]


def over_machines(
    address: str, count: int, nodes: int, others: Sequence[NodeAddress]
) -> list[Node]:
    """Return the nodes of a lease that has a machine for each, this one first.

    Args:
        address: of this machine.
        count: how many GPUs the lease has.
        nodes: how many nodes.
        others: by rank; none while they are not known.
    """
    each = count // nodes
    found = [Node(address=address, gpus=each)]
    for other in others:
        host = other["address"].removeprefix("tcp://").rpartition(":")[0]
        found.append(Node(host, each, None, other["address"], other["public_key"]))
    return found


def to_text(nodes: Sequence[Node]) -> str:
    """Return nodes as they stand in ``GPULEASE_NODES``."""
    return json.dumps([asdict(node) for node in nodes], separators=(",", ":"))


def from_text(text: str) -> list[Node]:
    """Return what ``to_text`` was given."""
    return [Node(**found) for found in json.loads(text)]


def environments(nodes: Sequence[Node], each: int, port: int) -> Iterator[dict[str, str]]:
    """Yield what each process is told beside its own environment, in the order of the ranks.

    Beside what torchrun tells its workers there are torchrun's own options (``PET_*``), so that
    ``torchrun train.py`` needs none on any node.

    Args:
        nodes: in the order of their rank.
        each: processes on one node.
        port: at which the first one may listen on the first node.
    """
    for place, node in enumerate(nodes):
        for local in range(each):
            yield {
                "MASTER_ADDR": nodes[0].address,
                "MASTER_PORT": str(port),
                "RANK": str(place * each + local),
                "WORLD_SIZE": str(len(nodes) * each),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(each),
                "GROUP_RANK": str(place),
                "GROUP_WORLD_SIZE": str(len(nodes)),
                "NODE_RANK": str(place),
                "NNODES": str(len(nodes)),
                "PET_NNODES": str(len(nodes)),
                "PET_NODE_RANK": str(place),
                "PET_NPROC_PER_NODE": str(node.gpus or "gpu"),
                "PET_MASTER_ADDR": nodes[0].address,
                "PET_MASTER_PORT": str(port),
                **({} if node.devices is None else {"CUDA_VISIBLE_DEVICES": node.devices}),
            }
