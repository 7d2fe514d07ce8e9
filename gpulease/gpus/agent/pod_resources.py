"""Who holds which device on this node, from the kubelet's PodResources socket.

An answer stays valid for a limited time while the kubelet is away, because its pods live on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from gpulease.gpus.agent.wire import ContainerDevice, read_allocatable, read_list
from gpulease.gpus.reading import Seen

log = logging.getLogger(__name__)

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
#: Seconds between two looks at who holds what, and at what is offered.
LIST_EVERY = 3.0
OFFERED_EVERY = 30.0
#: Seconds for which the last answer stands while the kubelet does not answer.
BELIEVED = 60.0
_TIMEOUT = 2.0
_SERVICE = "/v1.PodResourcesLister/"
_MOST = 4096
#: Google's plugin: ``nvidia0``, ``nvidia0/gi1``, each with ``/vgpu2`` where it is shared.
_NUMBERED = re.compile(r"nvidia(\d+)(?:/gi(\d+))?(?:/vgpu(\d+))?")


class PodResources:
    """The kubelet's word, kept for a moment.

    Args:
        socket: where the kubelet listens.
    """

    def __init__(self, socket: Path = SOCKET) -> None:
        self._socket = socket
        self._channel: Any = None
        self._held: list[ContainerDevice] | None = None
        self._held_at = float("-inf")
        self._asked = float("-inf")
        self._offered: frozenset[str] = frozenset()
        self._ever: frozenset[str] = frozenset()  # devices that were offered at some time
        self._offered_asked = float("-inf")
        #: Why the kubelet does not answer, "" while it does.
        self.problem = "the kubelet was not asked yet"

    def refresh(self, now: float, *, soon: bool = False) -> None:
        """Ask again if it is time; ``soon``: a process was seen that nobody accounts for.

        Args:
            now: a monotonic clock, seconds.
            soon: ask without waiting for the usual time.
        """
        if now - self._asked < (1.0 if soon else LIST_EVERY):
            return
        self._asked = now
        try:
            self._held = read_list(self._call("List"))
            self._held_at = now
            if now - self._offered_asked >= OFFERED_EVERY:
                self._offered_asked = now
                pairs = read_allocatable(self._call("GetAllocatableResources"))
                self._offered = frozenset(device for _, device in pairs)
                self._ever |= self._offered
        except (grpc.RpcError, ValueError, OSError) as error:
            self._failed(self._why(error))
        else:
            if self.problem:
                log.info("the kubelet answers at %s", self._socket)
            self.problem = ""

    def holders(self, now: float, seen: Mapping[str, Seen]) -> Sequence[ContainerDevice] | None:
        """Return who holds this node's GPUs; ``None`` when the kubelet is silent for too long."""
        if self._held is None or now - self._held_at > BELIEVED:
            return None
        named = [named_device(each, seen) for each in self._held]
        return [each for each in named if _is_gpu(each, seen)][:_MOST]

    def offered(self, uuid: str, seen: Mapping[str, Seen]) -> bool:
        """Whether the kubelet gives this device out; what it never offered cannot be told."""
        return uuid in _bases(self._offered, seen) or uuid not in _bases(self._ever, seen)

    def close(self) -> None:
        """Close the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _call(self, name: str) -> bytes:
        if not self._socket.exists():
            raise FileNotFoundError(f"there is no socket {self._socket}")
        if self._channel is None:
            options = [
                ("grpc.max_receive_message_length", 16 * 2**20),
                ("grpc.enable_http_proxy", 0),
                # Else it may get the connection of the one before, to a kubelet that is gone.
                ("grpc.use_local_subchannel_pool", 1),
            ]
            self._channel = grpc.insecure_channel(f"unix://{self._socket.absolute()}", options)
        ask = self._channel.unary_unary(
            _SERVICE + name, request_serializer=lambda _: b"", response_deserializer=bytes
        )
        answer: bytes = ask(None, timeout=_TIMEOUT)
        return answer

    def _failed(self, why: str) -> None:
        if why != self.problem:
            log.warning("the kubelet does not say who holds which device: %s", why)
        self.problem = why
        self.close()  # a kubelet that was restarted has a new socket of the same name

    @staticmethod
    def _why(error: Exception) -> str:
        if isinstance(error, grpc.RpcError):
            return f"{error.code().name.lower()}: {error.details()}"
        return str(error)


def named_device(held: ContainerDevice, seen: Mapping[str, Seen]) -> ContainerDevice:
    """Return a holding with its device by identifier, where the plugin counts devices instead."""
    found = _NUMBERED.fullmatch(held.device)
    if found is None or held.driver:
        return held
    uuid = _numbered(int(found[1]), found[2] and int(found[2]), seen)
    device = uuid + (f"::{found[3]}" if found[3] else "") if uuid else held.device
    return ContainerDevice(held.namespace, held.pod, held.container, held.resource, device)


def _numbered(index: int, instance: int | str | None, seen: Mapping[str, Seen]) -> str:
    cards = [u for u, each in seen.items() if not each.parent and each.info.index == index]
    if instance is None or not cards:
        return cards[0] if cards else ""
    parts = [u for u, each in seen.items() if each.parent == cards[0] and each.instance == instance]
    return parts[0] if parts else ""


def _is_gpu(held: ContainerDevice, seen: Mapping[str, Seen]) -> bool:
    """Whether a holding may be one of this node's GPUs; network cards and the like are not told."""
    known = held.device.partition("::")[0] in seen
    return (
        known
        or bool(held.driver)
        or "gpu" in held.resource
        or held.resource.startswith("nvidia.com/")
    )


def _bases(devices: Iterable[str], seen: Mapping[str, Seen]) -> set[str]:
    named = (named_device(ContainerDevice("", "", "", "", each), seen).device for each in devices)
    return {each.partition("::")[0] for each in named}
