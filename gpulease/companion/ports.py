"""Where a lease listens: its ports, and the control server by which home kernels reach it.

Ports come from a fixed range, so that a network policy can name them.  Without a range the system
chooses, which is said as port 0.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import zmq

from gpulease.channel.conversation import Message
from gpulease.channel.curve import Client, CurveServer
from gpulease.errors import GPULeaseError


class Ports:
    """The ports of one lease.

    Args:
        allowed: lowest and highest port, both included; None lets the system choose.
    """

    def __init__(self, allowed: tuple[int, int] | None = None) -> None:
        self._allowed = allowed
        self._taken: set[int] = set()

    def take(self, number: int, ip: str) -> list[int]:
        """Return so many ports that nobody listens on; zeros where the system chooses.

        Raises:
            GPULeaseError: ``no_ports`` when the range is used up, ``bad_address``.
        """
        if self._allowed is None:
            return [0] * number
        lowest, highest = self._allowed
        left = [port for port in range(lowest, highest + 1) if port not in self._taken]
        random.shuffle(left)  # a port that was just closed may still be in somebody's hands
        found: list[int] = []
        for port in left:
            if len(found) == number:
                break
            if _is_free(ip, port):
                found.append(port)
        if len(found) < number:
            raise GPULeaseError(
                "no_ports",
                f"The lease's ports {lowest} to {highest} are all in use.",
                next_step="Shut down a notebook that uses this GPU, or return it and ask again.",
                numbers={"lowest": lowest, "highest": highest},
            )
        self._taken.update(found)
        return found

    def spare(self, ip: str) -> list[int]:
        """Return one more port, or nothing where the range is used up."""
        try:
            return self.take(1, ip)
        except GPULeaseError:
            return []

    def give_back(self, ports: Iterable[int]) -> None:
        """These are listened on no longer."""
        self._taken.difference_update(ports)


def _is_free(ip: str, port: int) -> bool:
    with socket.socket() as probe:
        # As libzmq binds: a connection that lingers from before does not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise bad_address(ip, error.strerror or str(error)) from None
    return True


def bad_address(ip: str, why: str) -> GPULeaseError:
    """Return the refusal of an address that cannot be listened on."""
    return GPULeaseError(
        "bad_address",
        f"{ip} cannot be listened on: {why}.",
        next_step="Give the address of this machine by which notebooks reach it.",
        status=500,
    )


class ControlServer(CurveServer):
    """Answers home kernels: each key speaks for the kernel that it was admitted for.

    Args:
        ip: address of this machine to bind to.
        handler: answers calls: (name, arguments, the kernel's id or "").
        port: 0 lets the system choose.

    Raises:
        GPULeaseError: ``bad_address`` when ``ip`` cannot be bound to.
    """

    def __init__(
        self, ip: str, handler: Callable[[str, Message, str], Awaitable[Any]], port: int = 0
    ) -> None:
        self._handler = handler
        try:
            super().__init__(ip, self._hear, port, "The lease's supervisor failed")
        except zmq.ZMQError as error:
            raise bad_address(ip, error.strerror) from None

    async def _hear(self, client: Client, name: str, args: Message) -> Any:
        admitted_for = self.admitted.get(client.key, "")
        named = str(args.get("kernel_id") or "")
        if admitted_for and named and named != admitted_for:
            raise GPULeaseError("forbidden", "This key was admitted for another kernel.")
        client.name = admitted_for or named or client.name
        return await self._handler(name, args, client.name)
