"""A websocket to a lease service that refuses, hangs up, goes and comes."""

import asyncio
import gc
import json
import logging
import socket
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application
from tornado.websocket import websocket_connect

from gpulease.channel.websocket import ServerEnd, WebsocketClient
from tests.companion.parts import TOKEN, LeaseService
from tests.helpers import wait_for_async


class Owner:
    """This end: what it was told, and how it answers."""

    def __init__(self) -> None:
        self.links: list[bool] = []
        self.told: list[Any] = []
        self.attempts = 0
        self.takes = True

    def headers(self) -> dict[str, str]:
        self.attempts += 1
        return {"Authorization": f"Bearer {TOKEN}"}

    async def take(self, message: dict[str, Any]) -> None:
        self.told.append(message)
        if not self.takes:
            raise KeyError("lease")


@asynccontextmanager
async def linked(
    *, refuse: bool = False, keep: int = 0
) -> AsyncIterator[tuple[LeaseService, Owner, WebsocketClient, "asyncio.Task[None]"]]:
    service, owner = LeaseService(), Owner()
    service.refuse = refuse
    url = f"{service.url.replace('http', 'ws', 1)}/api/leases/linked/supervisor"
    link = WebsocketClient(
        url, headers=owner.headers, pushed=owner.take, greeting=lambda: {"type": "hello"},
        link=owner.links.append, keep=keep,
    )  # fmt: skip
    running = asyncio.create_task(link.run())
    try:
        if not refuse:
            await wait_for_async(lambda: owner.links == [True], 30, "the link")
        yield service, owner, link, running
    finally:
        link.close()
        await running
        await service.stop()


async def test_each_connection_begins_with_the_greeting() -> None:
    async with linked() as (service, owner, link, _running):
        link.push({"type": "one"})
        await wait_for_async(lambda: service.of_type("one"), 30, "the first message")
        service.channels[-1].close()
        await wait_for_async(lambda: owner.links == [True, False, True], 30, "a new link")
        link.push({"type": "two"})
        await wait_for_async(lambda: service.of_type("two"), 30, "the second message")
        assert [each["type"] for each in service.heard] == ["hello", "one", "hello", "two"]


async def test_what_cannot_be_taken_brings_a_new_connection() -> None:
    async with linked() as (service, owner, _link, _running):
        owner.takes = False
        service.tell({"type": "odd"})
        await wait_for_async(lambda: owner.links == [True, False, True], 30, "a new link")
        owner.takes = True
        service.tell({"type": "fine"})
        await wait_for_async(lambda: len(owner.told) == 2, 30, "the next message")
        assert owner.links == [True, False, True]


async def test_a_refusal_is_said_once_and_asked_again(caplog) -> None:
    async with linked(refuse=True) as (service, owner, link, _running):
        await wait_for_async(lambda: owner.attempts >= 3, 60, "further attempts")
        link.push({"type": "lost"})
        said = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert [each.getMessage()[-8:] for each in said if each.name == "gpulease.channel"] == [
            "HTTP 403"
        ]
        assert TOKEN not in caplog.text
        service.refuse = False
        await wait_for_async(lambda: owner.links == [True], 60, "the link")
        link.push({"type": "heard"})
        await wait_for_async(lambda: service.of_type("heard"), 30, "a message")
        assert not service.of_type("lost")


async def test_what_is_kept_is_said_after_the_greeting_and_old_gives_way_to_new() -> None:
    async with linked(refuse=True, keep=2) as (service, owner, link, _running):
        for n in range(3):
            link.push({"type": "note", "n": n})
        service.refuse = False
        await wait_for_async(lambda: len(service.heard) == 3, 60, "what was kept")
        assert [each.get("n") for each in service.heard] == [None, 1, 2]
        assert owner.links == [True]


async def test_what_is_no_message_changes_nothing() -> None:
    async with linked() as (service, owner, _link, _running):
        for raw in ("{not json", "[]", "7"):
            service.channels[-1].write_message(raw)
        service.tell({"type": "fine"})
        await wait_for_async(lambda: owner.told == [{"type": "fine"}], 30, "the next message")
        assert owner.links == [True]


async def test_a_closed_link_stays_down() -> None:
    async with linked() as (_service, owner, link, running):
        link.close()
        await asyncio.wait_for(asyncio.shield(running), 30)
        assert owner.links == [True, False]
        link.push({"type": "late"})
        assert not link.connected


def test_a_service_that_hangs_up_leaves_no_half_open_connection() -> None:
    async def hung_up() -> None:
        async with linked() as (service, owner, _link, _running):
            service.channels[0].close()
            await wait_for_async(lambda: owner.links == [True, False, True], 30, "a new link")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(hung_up())
        gc.collect()
    assert not [each for each in said if "Unclosed" in str(each.message)]


class Telling(ServerEnd):
    """A server's end whose readers chose their words in the address."""

    ends: "list[Telling]"
    written: list[str]

    def initialize(self, ends: "list[Telling]", written: list[str]) -> None:
        self.ends, self.written = ends, written

    def open(self, *args: str, **kwargs: str) -> None:
        super().open(*args, **kwargs)
        self.words = args[0]
        self.ends.append(self)

    def in_words(self, message: Any) -> Any:
        self.written.append(self.words)
        return {**message, "in": self.words}


@asynccontextmanager
async def readers(*words: str) -> AsyncIterator[tuple[list[Telling], list[str], list[Any]]]:
    """Open a websocket for each; yield the server's ends, what they wrote, and the clients'."""
    ends: list[Telling] = []
    written: list[str] = []
    listening, port = bind_unused_port()
    given = {"ends": ends, "written": written}
    server = HTTPServer(Application([("/(.*)", Telling, given)]))
    server.add_sockets([listening])
    clients = [await websocket_connect(f"ws://127.0.0.1:{port}/{each}") for each in words]
    try:
        yield ends, written, clients
    finally:
        streams = [client.stream for client in clients]
        for client in clients:
            client.close()
        await wait_for_async(lambda: all(each.closed() for each in streams), 30, "the ends")
        server.stop()
        await server.close_all_connections()


async def test_what_is_said_in_one_turn_arrives_whole_and_in_order() -> None:
    async with readers("en") as ((end,), _written, (client,)):
        empty = len(json.dumps({"text": "", "in": "en"}))
        texts = ["x" * (size - empty) for size in (empty, 125, 126, 127, 65535, 65536, 200_000)]
        texts += ["", "\u00fc\u20ac", "last"]
        for text in texts:
            end.send({"text": text})
        assert [json.loads(await client.read_message())["text"] for _ in texts] == texts


async def test_a_message_does_not_wait_until_the_one_before_it_was_received() -> None:
    async with readers("en") as ((end,), _written, _clients):
        connection = end.ws_connection.stream.socket
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_message_is_written_once_for_all_who_read_it_in_the_same_words() -> None:
    words = ["en", "de", "en", "de"]
    async with readers(*words) as (ends, written, clients):
        message = {"text": "x"}
        for end in ends:
            end.send(message)
        assert [json.loads(await client.read_message())["in"] for client in clients] == words
        assert sorted(written) == ["de", "en"]
        ends[0].send({"text": "x"})
        assert json.loads(await clients[0].read_message()) == {"text": "x", "in": "en"}
        assert len(written) == 3, "another message, though it says the same"


async def test_nothing_is_sent_to_a_reader_that_left_in_the_same_turn() -> None:
    async with readers("en") as ((end,), _written, (client,)):
        end.send({"text": "x"})
        end.close()
        assert await client.read_message() is None
        end.send({"text": "y"})
