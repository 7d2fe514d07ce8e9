"""A kubelet's PodResources socket: the messages as a kubelet encodes them, served by grpcio."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from gpulease.gpus.agent.wire import ContainerDevice


def varint(value: int) -> bytes:
    """Encode a number."""
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def part(number: int, content: bytes | str) -> bytes:
    """Encode one field that is a message or a text."""
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def devices(resource: str, *names: str) -> bytes:
    """Encode a ``ContainerDevices``, with the topology that the agent passes over."""
    topology = part(3, part(1, varint(8) + varint(0)))
    return part(1, resource) + b"".join(part(2, name) for name in names) + topology


def container(name: str, held: list[ContainerDevice]) -> bytes:
    """Encode a ``ContainerResources``, with processors and memory as a kubelet does."""
    found = part(1, name)
    for each in held:
        if each.driver:
            cdi = part(1, part(1, "k8s.example/gpu=0"))
            claim = cdi + part(2, each.driver) + part(3, each.pool) + part(4, each.device)
            found += part(5, part(2, "claim") + part(3, each.namespace) + part(4, claim))
        else:
            found += part(2, devices(each.resource, each.device))
    numbers = part(3, varint(1) + varint(300))  # packed, as proto3 does
    return found + numbers + part(4, part(1, "memory") + varint(2 << 3) + varint(2**40))


def listing(held: list[ContainerDevice]) -> bytes:
    """Encode a ``ListPodResourcesResponse``."""
    pods: dict[tuple[str, str], dict[str, list[ContainerDevice]]] = {}
    for each in held:
        pods.setdefault((each.namespace, each.pod), {}).setdefault(each.container, []).append(each)
    return b"".join(
        part(
            1,
            part(1, pod)
            + part(2, namespace)
            + b"".join(part(3, container(name, mine)) for name, mine in containers.items()),
        )
        for (namespace, pod), containers in pods.items()
    )


@dataclass
class Kubelet:
    """What the socket answers."""

    path: Path
    held: list[ContainerDevice] = field(default_factory=list)
    offered: list[tuple[str, str]] = field(default_factory=list)
    code: grpc.StatusCode | None = None
    raw: bytes | None = None
    asked: int = 0

    def list(self, _request: bytes, context: grpc.ServicerContext) -> bytes:
        self.asked += 1
        if self.code is not None:
            context.abort(self.code, "as the test wants")
        return listing(self.held) if self.raw is None else self.raw

    def allocatable(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        return b"".join(part(1, devices(resource, name)) for resource, name in self.offered)


@contextmanager
def serving(path: Path) -> Iterator[Kubelet]:
    """Serve on a socket until the block ends."""
    found = Kubelet(path)
    calls = {"List": found.list, "GetAllocatableResources": found.allocatable}
    handlers = {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),)
    )
    server.add_insecure_port(f"unix://{path}")
    server.start()
    try:
        yield found
    finally:
        server.stop(None).wait()
        path.unlink(missing_ok=True)
