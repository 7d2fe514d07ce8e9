"""Each carrier as the contract sees it: one end that asks and is told, one that answers and tells.

Both ends are the real ones, over real sockets.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gpulease.channel.unix import UnixClient, UnixServer
from gpulease.errors import GPULeaseError
from tests.helpers import wait_for_async

Message = dict[str, Any]
Called = Callable[[str, Message], Awaitable[Any]]


def gone() -> GPULeaseError:
    return GPULeaseError("gone", "The other end is gone.", status=503)


class Carrier(ABC):
    """A channel that is up; ``pushed`` is what the asking end was told."""

    comes_back = True

    def __init__(self, directory: Path, called: Called) -> None:
        self.directory = directory
        self.called = called
        self.pushed: list[Message] = []

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def begin(self, name: str, args: Message) -> asyncio.Future[Any]:
        """Begin a call."""

    @abstractmethod
    def notify(self, name: str, args: Message) -> None: ...

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send any message from the asking end."""

    @abstractmethod
    async def tell(self, message: Message) -> None:
        """Tell the asking end."""

    @abstractmethod
    async def cut(self) -> None:
        """Break the connection."""

    async def call(self, name: str, **args: Any) -> Any:
        return await asyncio.wait_for(self.begin(name, args), 30)


class Unix(Carrier):
    async def open(self) -> None:
        self.lost = 0
        await self._listen()
        self.client = UnixClient(
            str(self.directory / "s"), "k1", pushed=self.pushed.append, lost=self._lost, gone=gone
        )
        await self._connected()

    async def _listen(self) -> None:
        async def called(client: str, name: str, args: Message) -> Any:
            assert client == "k1"
            return await self.called(name, args)

        self.server = UnixServer(
            self.directory / "s", lambda: [{"event": "hello"}], called, "It failed"
        )
        await self.server.open()

    async def _connected(self) -> None:
        await wait_for_async(lambda: self.server.clients == {"k1"}, 30, "the client")
        await wait_for_async(lambda: {"event": "hello"} in self.pushed, 30, "the greeting")
        self.pushed.clear()

    def _lost(self) -> None:
        self.lost += 1

    async def close(self) -> None:
        self.client.close()
        await self.server.close()

    def begin(self, name: str, args: Message) -> asyncio.Future[Any]:
        if len(str(args)) < 10_000:
            return asyncio.wrap_future(self.client.start_call(name, args))
        # Sending waits for the server to read, which is on this loop.
        return asyncio.ensure_future(asyncio.to_thread(self.client.call, name, args))

    def notify(self, name: str, args: Message) -> None:
        self.client.notify(name, args)

    def send(self, message: Message) -> None:
        self.client.push(message)

    async def tell(self, message: Message) -> None:
        self.server.push(message)

    async def cut(self) -> None:
        await self.server.close()
        await wait_for_async(lambda: self.lost, 30, "the loss")
        await self._listen()

    async def back(self) -> None:
        await self._connected()


CARRIERS: dict[str, type[Carrier]] = {"unix": Unix}
