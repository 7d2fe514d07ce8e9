"""Who holds which device on this node, from the kubelet's PodResources socket.

The few messages of the API (``v1``) that the agent reads, the two calls, how often they are made,
and for how long an answer is believed while the kubelet is away (its pods live on).  Fields that
are not listed are passed over, as newer kubelets have more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from gpulease.gpus.reading import Seen

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}


@dataclass(frozen=True)
class Held:
    """One device in the hands of one container.

    ``driver`` and ``pool`` are set for the device of a claim, ``resource`` for any other.
    """

    namespace: str
    pod: str
    container: str
    resource: str
    device: str
    driver: str = ""
    pool: str = ""


def read_list(data: bytes) -> list[Held]:
    """Read a ``ListPodResourcesResponse``.

    Raises:
        ValueError: the bytes are no such message.
    """
    return [held for pod in _messages(data, 1) for held in _pod(pod)]


def read_allocatable(data: bytes) -> list[tuple[str, str]]:
    """Read an ``AllocatableResourcesResponse``: (resource, device) of all that may be given out.

    Raises:
        ValueError: the bytes are no such message.
    """
    return [pair for each in _messages(data, 1) for pair in _devices(each)]


def _pod(data: bytes) -> Iterator[Held]:
    name, namespace = _text(data, 1), _text(data, 2)
    for container in _messages(data, 3):
        label = _text(container, 1)
        for each in _messages(container, 2):
            for resource, device in _devices(each):
                yield Held(namespace, name, label, resource, device)
        for claim in _messages(container, 5):
            for each in _messages(claim, 4):
                driver, pool, device = _text(each, 2), _text(each, 3), _text(each, 4)
                yield Held(namespace, name, label, "", device, driver, pool)


def _devices(data: bytes) -> list[tuple[str, str]]:
    resource = _text(data, 1)
    return [(resource, device.decode("utf-8")) for device in _messages(data, 2)]


def _text(data: bytes, number: int) -> str:
    found = list(_messages(data, number))
    return found[-1].decode("utf-8") if found else ""


def _messages(data: bytes, number: int) -> Iterator[bytes]:
    """Yield the contents of every field ``number``, be it a message or a text."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            _, at = _varint(data, at)
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in _WIDTHS:
            size = _WIDTHS[kind]
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if at + size > len(data):
            raise ValueError("a field is longer than its message")
        if kind == _BYTES and key >> 3 == number:
            yield data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number is too long")


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
        self._held: list[Held] | None = None
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

    def holders(self, now: float, seen: Mapping[str, Seen]) -> Sequence[Held] | None:
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


def named_device(held: Held, seen: Mapping[str, Seen]) -> Held:
    """Return a holding with its device by identifier, where the plugin counts devices instead."""
    found = _NUMBERED.fullmatch(held.device)
    if found is None or held.driver:
        return held
    uuid = _numbered(int(found[1]), found[2] and int(found[2]), seen)
    device = uuid + (f"::{found[3]}" if found[3] else "") if uuid else held.device
    return Held(held.namespace, held.pod, held.container, held.resource, device)


def _numbered(index: int, instance: int | str | None, seen: Mapping[str, Seen]) -> str:
    cards = [u for u, each in seen.items() if not each.parent and each.info.index == index]
    if instance is None or not cards:
        return cards[0] if cards else ""
    parts = [u for u, each in seen.items() if each.parent == cards[0] and each.instance == instance]
    return parts[0] if parts else ""


def _is_gpu(held: Held, seen: Mapping[str, Seen]) -> bool:
    """Whether a holding may be one of this node's GPUs; network cards and the like are not told."""
    known = held.device.partition("::")[0] in seen
    return (
        known
        or bool(held.driver)
        or "gpu" in held.resource
        or held.resource.startswith("nvidia.com/")
    )


def _bases(devices: Iterable[str], seen: Mapping[str, Seen]) -> set[str]:
    named = (named_device(Held("", "", "", "", each), seen).device for each in devices)
    return {each.partition("::")[0] for each in named}
