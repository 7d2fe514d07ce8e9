"""The few messages of the kubelet's PodResources API (``v1``) that the agent reads.

They are in the wire format of protocol buffers.  Fields that are not listed are skipped, because
newer kubelets have more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}


@dataclass(frozen=True)
class ContainerDevice:
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


def read_list(data: bytes) -> list[ContainerDevice]:
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


def _pod(data: bytes) -> Iterator[ContainerDevice]:
    name, namespace = _text(data, 1), _text(data, 2)
    for container in _messages(data, 3):
        label = _text(container, 1)
        for each in _messages(container, 2):
            for resource, device in _devices(each):
                yield ContainerDevice(namespace, name, label, resource, device)
        for claim in _messages(container, 5):
            for each in _messages(claim, 4):
                driver, pool, device = _text(each, 2), _text(each, 3), _text(each, 4)
                yield ContainerDevice(namespace, name, label, "", device, driver, pool)


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
