"""Each carrier as the contract sees it: one end that asks and is told, one that answers and tells.

Both ends are the real ones, over real sockets.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from gpulease.channel.asynchronous import AsynchronousEnd
from gpulease.channel.curve import Client, CurveClient, CurveServer, new_keys
from gpulease.channel.iothread import IOThread
from gpulease.channel.pair import ChildEnd, ParentEnd
from gpulease.channel.unix import UnixClient, UnixServer
from gpulease.channel.websocket import ServerEnd, WebsocketClient
from gpulease.errors import GPULeaseError
from tests.helpers import wait_for_async

Message = dict[str, Any]
Called = Callable[[str, Message], Awaitable[Any]]


def gone() -> GPULeaseError:
    return GPULeaseError("gone", "The other end is gone.", status=503)


class Carrier(ABC):
    """A channel that is up; ``pushed`` is what the asking end was told."""

    comes_back = True
    gone_reason = "gone"

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


class Pair(Carrier):
    """The child asks: it is the end on a thread; what the parent answers is on the loop."""

    comes_back = False
    gone_reason = "parent_gone"

    async def open(self) -> None:
        mine, theirs = socket.socketpair()
        # A process of its own has its descriptor alone; here the object must not close it too.
        self.child = ChildEnd(theirs.detach(), self._told)
        self.thread = threading.Thread(target=self.child.serve, daemon=True)
        self.thread.start()
        self.parent = await ParentEnd.over(mine, lambda _: None, gone(), called=self.called)

    def _told(self, name: str, args: Message) -> None:
        assert name == "told"
        self.pushed.append(args)

    async def close(self) -> None:
        self.parent.close()
        await asyncio.wait_for(self.parent.gone.wait(), 30)
        await asyncio.to_thread(self.thread.join, 30)

    def begin(self, name: str, args: Message) -> asyncio.Future[Any]:
        if len(str(args)) < 10_000:
            return asyncio.wrap_future(self.child.start_call(name, args))
        return asyncio.ensure_future(asyncio.to_thread(self._call, name, args))

    def _call(self, name: str, args: Message) -> Any:
        return self.child.start_call(name, args).result(30)

    def notify(self, name: str, args: Message) -> None:
        self.child.notify(name, args)

    def send(self, message: Message) -> None:
        self.child.push(message)

    async def tell(self, message: Message) -> None:
        self.parent.notify("told", message)

    async def cut(self) -> None:
        self.parent.close()


class _Socket(ServerEnd):
    """The server's end of a websocket."""

    def initialize(self, carrier: Websocket) -> None:
        self.carrier = carrier
        self.end = AsynchronousEnd(self.send, called=carrier.called, failed="It failed")

    def open(self, *args: str, **kwargs: str) -> None:
        self.carrier.socket = self

    def on_message(self, message: str | bytes) -> None:
        found = self.read(message)
        if found is not None:
            self.end.received(found)


class Websocket(Carrier):
    async def open(self) -> None:
        listening, port = bind_unused_port()
        self.server = HTTPServer(Application([("/", _Socket, {"carrier": self})]))
        self.server.add_sockets([listening])
        self.client = WebsocketClient(
            f"ws://127.0.0.1:{port}/", headers=dict, pushed=self.pushed.append, gone=gone
        )
        self.running = asyncio.create_task(self.client.run())
        await self.back()

    async def close(self) -> None:
        self.client.close()
        await self.running
        self.server.stop()
        await self.server.close_all_connections()

    def begin(self, name: str, args: Message) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.client.call(name, args))

    def notify(self, name: str, args: Message) -> None:
        self.client.notify(name, args)

    def send(self, message: Message) -> None:
        self.client.push(message)

    async def tell(self, message: Message) -> None:
        self.socket.send(message)

    async def cut(self) -> None:
        self.socket.close()
        await wait_for_async(lambda: not self.client.connected, 30, "the loss")

    async def back(self) -> None:
        await wait_for_async(lambda: self.client.connected, 30, "the connection")


class Curve(Carrier):
    async def open(self) -> None:
        self.keys = new_keys()
        self.io = IOThread()
        self.lost = 0
        await self._begin()

    async def _begin(self) -> None:
        async def called(client: Client, name: str, args: Message) -> Any:
            assert (client.key, client.name) == (self.keys.public, "k1")
            return {} if name == "ping" else await self.called(name, args)

        self.server = CurveServer("127.0.0.1", called, 0, "It failed")
        self.server.admit(self.keys.public, "k1")
        self.client = await asyncio.to_thread(
            CurveClient, self.io, self.server.endpoint, self.keys, pushed=self.pushed.append,
            lost=self._lost, beat=dict, gone=gone,
        )  # fmt: skip
        await asyncio.wrap_future(self.client.start_call("ping", {}))

    def _lost(self) -> None:
        self.lost += 1

    async def close(self) -> None:
        self.client.close()
        await asyncio.to_thread(self.io.stop)
        await self.server.stop()

    def begin(self, name: str, args: Message) -> asyncio.Future[Any]:
        return asyncio.wrap_future(self.client.start_call(name, args))

    def notify(self, name: str, args: Message) -> None:
        self.client.notify(name, args)

    def send(self, message: Message) -> None:
        self.client.push(message)

    async def tell(self, message: Message) -> None:
        self.server.push(message, "k1")

    async def cut(self) -> None:
        await self.server.stop()
        await wait_for_async(lambda: self.lost, 30, "the loss")

    async def back(self) -> None:
        """A supervisor that is gone stays so: its client is another, of another supervisor."""
        self.client.close()
        await self._begin()


CARRIERS: dict[str, type[Carrier]] = {
    "unix": Unix,
    "pair": Pair,
    "websocket": Websocket,
    "curve": Curve,
}
