"""A lease's control server: where home kernels reach its supervisor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import zmq

from gpulease.channel.conversation import Message
from gpulease.channel.curve import Client, CurveServer
from gpulease.companion.ports import bad_address
from gpulease.errors import GPULeaseError


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
            raise GPULeaseError(
                "forbidden", "This key was admitted for another kernel.", status=403
            )
        client.name = admitted_for or named or client.name
        return await self._handler(name, args, client.name)
