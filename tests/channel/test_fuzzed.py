"""Whatever a peer sends on a channel: no crash, no growth, and nothing of one that is unproved."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from gpulease.channel.curve import CurveClient, CurveServer, new_keys, secure_client
from gpulease.channel.iothread import IOThread
from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.channel.pair import ParentEnd
from gpulease.channel.unix import UnixClient, UnixServer
from gpulease.errors import GPULeaseError
from gpulease.wire.connection import Wire
from gpulease.wire.message import Message, header
from gpulease.wire.pieces import PIECE, Offers
from tests.channel.carriers import gone
from tests.fuzzing import LONG, Fuzz, unharmed
from tests.helpers import wait_for_async

CALLS: list[Any] = [
    {"id": 1, "call": "ask", "args": {"gpu_class": "gpu", "count": 1}},
    {"id": 1, "call": "ask", "args": {}},
    {"id": 2, "call": "wait", "args": {"kernel_id": "k1"}},
    {"cancel": 2},
    {"call": "cell", "args": {"busy": True}},
    {"id": 1, "ok": {"leases": []}},
    {"id": 1, "problem": {"reason": "no", "title": "No.", "status": 409, "numbers": {"a": 1}}},
    {"push": "warn", "until": "2026-01-01T00:00:00+00:00", "reason": "idle"},
]


async def answer(name: str, args: dict[str, Any]) -> Any:
    if name == "wait":
        await asyncio.Event().wait()
    if name == "refused":
        raise gone()
    return {"got": len(args)}


@pytest.mark.parametrize("seconds", LONG)
async def test_the_unix_socket(tmp_path: Path, seconds: int) -> None:
    fuzz = Fuzz(seconds)

    async def called(_: str, name: str, args: dict[str, Any]) -> Any:
        return await answer(name, args)

    server = UnixServer(tmp_path / "s", lambda: [{"event": "hello"}], called, "It failed")
    await server.open()
    async with unharmed(fuzz):
        writer: asyncio.StreamWriter | None = None
        async for frame in fuzz.frames([{"hello": "k1"}, *CALLS]):
            if writer is None or writer.is_closing():
                writer = (await asyncio.open_unix_connection(str(server.path)))[1]
                if not fuzz.chance(3):
                    writer.write(b'{"hello": "k1"}\n')
            with suppress(ConnectionError):
                writer.write(frame + b"\n" * (not fuzz.chance(20)))
                await writer.drain()
            if fuzz.chance(30):
                writer.close()
        assert writer is not None
        writer.close()
        await wait_for_async(lambda: not server.clients, 30, "that all have gone")
        for end in server._answering:
            end.close()  # "wait" waits for ever
    client = UnixClient(str(server.path), "k2", pushed=lambda _: None, lost=lambda: None, gone=gone)
    assert await asyncio.to_thread(client.call, "ask", {"a": 1}) == {"got": 1}
    client.close()
    await server.close()


@pytest.mark.parametrize("seconds", LONG)
async def test_the_pair_of_a_supervisor_and_its_companion(seconds: int) -> None:
    fuzz = Fuzz(seconds)
    frames = fuzz.frames(CALLS)
    over = False
    async with unharmed(fuzz, told="a child process sent what is no message"):
        while not over:
            mine, theirs = socket.socketpair()
            theirs.setblocking(False)
            parent = await ParentEnd.over(mine, lambda _: None, gone(), called=answer)
            waiting = asyncio.ensure_future(parent.call("open", {}))
            writer = (await asyncio.open_unix_connection(sock=theirs))[1]
            over = True
            async for frame in frames:
                with suppress(ConnectionError):
                    writer.write(frame.replace(b"\n", b"") + b"\n")
                    await writer.drain()
                if parent.gone.is_set() or fuzz.chance(300):
                    over = False
                    break
            writer.close()
            await asyncio.wait_for(parent.gone.wait(), 30)
            with suppress(GPULeaseError):
                await waiting
            parent.close()


def dealer(endpoint: Endpoint, keys: KeyPair, identity: bytes = b"") -> zmq.asyncio.Socket:
    found = zmq.asyncio.Context.instance().socket(zmq.DEALER)
    found.linger = 0
    if identity:
        found.identity = identity
    secure_client(found, endpoint, keys)
    found.connect(endpoint.address)
    return found


async def hurl(peer: zmq.asyncio.Socket, frames: list[bytes]) -> None:
    """Send, and read what comes back; who is not let in sends nowhere."""
    with suppress(zmq.Again):
        await peer.send_multipart(frames, zmq.NOBLOCK)
    with suppress(zmq.Again):
        while True:
            await peer.recv_multipart(zmq.NOBLOCK)


@pytest.mark.parametrize("seconds", LONG)
async def test_the_control_channels_server(seconds: int) -> None:
    fuzz = Fuzz(seconds)
    heard: set[str] = set()

    async def called(client: Any, name: str, args: dict[str, Any]) -> Any:
        heard.add(client.key)
        return await answer("ask", args)

    server = CurveServer("127.0.0.1", called, 0, "It failed")
    home, stranger = new_keys(), new_keys()
    server.admit(home.public, "k1")
    peers = [dealer(server.endpoint, home), dealer(server.endpoint, stranger)]
    async with unharmed(fuzz):
        async for frame in fuzz.frames(CALLS):
            for peer in peers:
                more = [b"more"] * fuzz.chance(20)
                await hurl(peer, [frame, *more])
    await wait_for_async(lambda: heard, 30, "a call of who is let in")
    assert heard == {home.public}
    assert len(server._clients) <= 1
    for peer in peers:
        peer.close()
    await server.stop()


@pytest.mark.parametrize("seconds", LONG)
async def test_the_control_channels_client(seconds: int) -> None:
    fuzz = Fuzz(seconds)
    context = zmq.asyncio.Context.instance()
    router, endpoint = hostile_router(context)
    io = IOThread()
    client = await asyncio.to_thread(
        CurveClient, io, endpoint, new_keys(), pushed=lambda _: None, lost=lambda: None,
        beat=dict, gone=gone,
    )  # fmt: skip
    identity, _ = await asyncio.wait_for(router.recv_multipart(), 30)
    async with unharmed(fuzz):
        async for frame in fuzz.frames(CALLS):
            await router.send_multipart([identity, frame])
    await all_read(router, identity)
    asked = client.start_call("ask", {})
    while not asked.done():
        said = await asyncio.wait_for(router.recv_multipart(), 30)
        call = json.loads(said[1])
        if "call" in call:  # else it answers what came before
            answered = {"id": call["id"], "ok": {"got": 7}}
            await router.send_multipart([identity, json.dumps(answered).encode()])
    assert asked.result() == {"got": 7}
    client.close()
    await asyncio.to_thread(io.stop)
    router.close()


async def all_read(router: zmq.asyncio.Socket, identity: bytes) -> None:
    """Wait until the client has read all that was sent: what it reads later may be an answer.

    A router drops what a slow reader has no room for, so the last message is sent until it arrives.
    """
    last = json.dumps({"id": 10**6, "call": "last", "args": {}}).encode()

    async def answered() -> bool:
        await router.send_multipart([identity, last])
        while await router.poll(100):
            if json.loads((await router.recv_multipart())[1]).get("id") == 10**6:
                return True
        return False

    await wait_for_async(answered, 60, "an answer to the last message")


def hostile_router(context: zmq.asyncio.Context) -> tuple[zmq.asyncio.Socket, Endpoint]:
    """Return a server that lets everybody in, and where it is."""
    router = context.socket(zmq.ROUTER)
    router.linger = 0
    public, secret = zmq.curve_keypair()
    router.curve_secretkey, router.curve_publickey = secret, public
    router.curve_server = True
    port = router.bind_to_random_port("tcp://127.0.0.1")
    return router, Endpoint(f"tcp://127.0.0.1:{port}", public.decode())


HEADS: list[Any] = [
    {"kind": "run", "number": 1, "body": {}, "sizes": [3], "inline": True, "reply_to": None},
    {"kind": "run", "number": 2, "body": {"a": 1}, "sizes": [5 * 2**20, 7], "inline": False},
    {"kind": "run", "number": 3, "body": {}, "sizes": [], "inline": False, "reply_to": 1},
    {"kind": "reply", "number": 4, "body": {}, "sizes": [2**20], "inline": False, "reply_to": 1},
    {"kind": "reply", "number": 5, "body": {}, "sizes": [], "inline": True, "reply_to": 2},
    {"kind": "refusal", "number": 6, "body": {}, "sizes": [], "inline": True, "reply_to": 3},
    {"kind": "piece", "offer": 2, "blob": 0, "at": 0},
    {"kind": "piece", "offer": 2, "blob": 0, "at": 4 * 2**20},
    {"kind": "piece", "offer": 2, "blob": 1, "at": 0, "withdrawn": True},
    {"kind": "get", "offer": 1, "blob": 0, "at": 0},
    {"kind": "got", "offer": 1},
    {"kind": "cancel", "number": 0, "cancel": 1},
    {"kind": "near", "name": "gpulease-nobody", "call": "a", "answer": "b"},
    {"kind": "far"},
    {"kind": "second"},
    {"kind": "second.door", "bulk": "a", "port": 9, "keys": [["00" * 16, "11" * 32, "22" * 32]]},
    {"kind": "second.no_door", "why": "none"},
    {"kind": "second.unreached", "bulk": "a"},
    {"kind": "second.ready", "bulk": "a"},
    {"kind": "second.fetch", "bulk": "a", "stream": 0, "pieces": [[2, 0, 0], [2, 0, 2**20]]},
    {"kind": "second.cut", "bulk": "a"},
]


@pytest.mark.parametrize("seconds", LONG)
async def test_the_wires_server(seconds: int) -> None:
    fuzz = Fuzz(seconds)
    taken: list[str] = []

    def handle(message: Message) -> None:
        taken.append(message.kind)
        if message.kind == "run":
            wire.reply(message, {"a": 1}, [bytearray(2**21)] if fuzz.chance(50) else [])

    wire = Wire(handle, too_much)
    home = new_keys()
    endpoint = wire.listen(home.public, "127.0.0.1", second=0)
    peer = dealer(endpoint, home, b"home")
    async with unharmed(fuzz):
        async for frame in fuzz.frames(HEADS):
            blobs = [b"x" * 3] * fuzz.chance(2) + [b"y" * 2**20] * fuzz.chance(40)
            await hurl(peer, [frame, *blobs])
            taken.clear()
        await heard_out(peer)
        peer.close()
        wire.withdraw()
    assert wire.thread.is_alive()
    client = Wire(lambda _: None)
    client.connect(endpoint, home)
    asked = await asyncio.to_thread(lambda: client.request("run", {}).wait(30))
    assert asked is not None
    assert asked.body == {"a": 1}
    client.close()
    wire.close()


async def heard_out(peer: zmq.asyncio.Socket) -> None:
    """Wait for the answer to a last message: what is read later may answer the next peer's."""
    await peer.send(json.dumps({**HEADS[0], "number": 10**6, "sizes": []}).encode())
    while True:
        said = json.loads((await asyncio.wait_for(peer.recv_multipart(), 60))[0])
        if said.get("reply_to") == 10**6:
            break


async def test_a_name_that_cannot_be_written_as_bytes_ends_no_wire(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire = Wire(lambda message: wire.reply(message, {"a": 1}))
    home = new_keys()
    peer = dealer(wire.listen(home.public, "127.0.0.1", second=0), home, b"home")
    words = {"name": "a", "call": "b", "answer": "c"}
    for each in words:
        await peer.send(json.dumps({"kind": "near", **words, each: "\ud800"}).encode())
    await peer.send(json.dumps({**HEADS[0], "sizes": []}).encode())
    answer = json.loads((await asyncio.wait_for(peer.recv_multipart(), 30))[0])
    assert answer["body"] == {"a": 1}
    assert caplog.text.count("malformed") == len(words)
    peer.close()
    wire.close()


async def test_a_piece_is_given_once_however_often_it_is_asked_for() -> None:
    """What is given and not taken waits in the giver's memory: it must not wait forty times."""
    wire = Wire(lambda message: wire.reply(message, {}, [bytearray(b"z") * (PIECE + 7)]))
    home = new_keys()
    peer = dealer(wire.listen(home.public, "127.0.0.1"), home, b"home")
    await peer.send(json.dumps(HEADS[0]).encode())
    offer = json.loads((await asyncio.wait_for(peer.recv_multipart(), 30))[0])["number"]
    places = [(0, 0), (0, 1), (0, PIECE), (0, PIECE + 1), (0, 2 * PIECE), (1, 0)]
    for blob, at in places * 40:
        await peer.send(header(kind="get", offer=offer, blob=blob, at=at))
    given = []
    for _ in range(len(places) * 40):
        head, piece = await asyncio.wait_for(peer.recv_multipart(), 30)
        found = json.loads(head)
        assert bool(found.get("withdrawn")) == (not piece)
        if piece:
            given.append((found["blob"], found["at"], len(piece)))
    assert given == [(0, 0, PIECE), (0, PIECE, 7)]
    peer.close()
    wire.close()


def test_what_is_never_taken_is_offered_no_longer() -> None:
    offers = Offers()
    for number in range(100):
        offers.put(number, [memoryview(bytes(4))])
    ask = {"blob": 0, "at": 0}
    given = [number for number in range(100) if offers.answer({"offer": number, **ask})[1]]
    assert given == list(range(68, 100))


async def test_who_sends_faster_than_is_read_fills_its_own_memory() -> None:
    busy, go_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        busy.set()
        assert go_on.wait(60)

    wire = Wire(handle)
    home = new_keys()
    peer = dealer(wire.listen(home.public, "127.0.0.1"), home, b"home")
    peer.sndhwm = 1
    head = json.dumps({**HEADS[0], "sizes": [2**20]}).encode()
    try:
        await peer.send_multipart([head, b"y" * 2**20])
        assert await asyncio.to_thread(busy.wait, 30)
        sent = 0
        with suppress(TimeoutError):
            while sent < 500:
                await asyncio.wait_for(peer.send_multipart([head, b"y" * 2**20]), 1)
                sent += 1
        assert sent < 200, "of what is not read the most part waits at its sender"
    finally:
        go_on.set()
        peer.close()
        wire.close()


async def test_a_stranger_on_the_wire_is_never_heard() -> None:
    taken: list[Message] = []
    wire = Wire(taken.append)
    home = new_keys()
    endpoint = wire.listen(home.public, "127.0.0.1")
    peer = dealer(endpoint, new_keys(), b"home")
    fuzz = Fuzz(0)
    async for frame in fuzz.frames(HEADS):
        await hurl(peer, [frame])
    client = Wire(lambda _: None)
    client.connect(endpoint, home)
    client.request("mine", {})
    await wait_for_async(lambda: taken, 30, "the home kernel's own message")
    assert [each.kind for each in taken] == ["mine"]
    peer.close()
    client.close()
    wire.close()


@pytest.mark.parametrize("seconds", LONG)
async def test_the_wires_client(seconds: int) -> None:
    fuzz = Fuzz(seconds)
    router, endpoint = hostile_router(zmq.asyncio.Context.instance())
    wire = Wire(lambda _: None, too_much)
    wire.connect(endpoint, new_keys())
    async with unharmed(fuzz):
        async for frame in fuzz.frames(HEADS):
            asked = wire.request("run", {}, [bytearray(2**21)] if fuzz.chance(50) else ())
            blobs = [b"x" * 3] * fuzz.chance(2) + [b"y" * 2**20] * fuzz.chance(40)
            await router.send_multipart([b"home", frame, *blobs])
            await drain(router)
            wire.cancel(asked)
        wire.withdraw()
    assert wire.thread.is_alive()
    await asyncio.to_thread(wire.close)
    assert threading.active_count() < 50
    router.close()


async def drain(router: zmq.asyncio.Socket) -> None:
    with suppress(zmq.Again):
        while True:
            await router.recv_multipart(zmq.NOBLOCK)


def too_much(total: int) -> GPULeaseError | None:
    return gone() if total > 2**25 else None
