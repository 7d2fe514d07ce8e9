"""Large blobs between two machines: sealed, bounded, and by the first wire where it breaks."""

import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gpulease.errors import GPULeaseError
from gpulease.wire import door, seal
from gpulease.wire.connection import Wire
from gpulease.wire.door import Proved, StreamKeys
from gpulease.wire.lane import PIECE
from gpulease.wire.message import Message, header
from gpulease.wire.seal import TAG
from gpulease.wire.stream import HELLO, WINDOW, Place
from tests.helpers import wait_for
from tests.wire.apart import HEAD, NAME, Between, Ends, content, far_apart, frames


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    far_apart(monkeypatch)


@pytest.fixture
def ends() -> Iterator[Ends]:
    each = Ends()
    yield each
    each.close()


def test_large_blobs_take_the_streams_both_ways(ends: Ends) -> None:
    blob = content(2)
    for _ in range(3):
        assert ends.bring() == ends.blob
        assert ends.send(blob) == blob
    assert ends.by_first == 0
    assert ends.client.slow_because == ""
    assert {each.name for each in ends.client.threads} == {
        "gpulease-wire", "gpulease-bulk-in", "gpulease-bulk-out",
    }  # fmt: skip


def test_a_value_may_resize_what_came(ends: Ends) -> None:
    came = ends.bring()
    came += b"more"
    assert came[:-4] == ends.blob


def test_messages_share_the_streams(ends: Ends) -> None:
    pending = [ends.client.request("bring", {}) for _ in range(5)]
    blob = content(3)
    assert ends.send(blob) == blob
    replies = [each.wait(60) for each in pending]
    assert all(reply is not None and reply.blobs[0] == ends.blob for reply in replies)
    assert ends.by_first == 0


def test_a_cipher_that_cannot_work_in_place_is_as_right(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions of ``cryptography`` before 47."""
    for wire in (ends.client, ends.server):
        assert wire._second.bulk is not None
        for stream in wire._second.bulk._streams:
            stream._sealer._in_place = stream._opener._in_place = False
    assert ends.bring() == ends.blob
    assert ends.by_first == 0


class Once:
    """Tampers with the frame number ``at`` that is returned, once."""

    def __init__(self, how: str, at: int) -> None:
        self.how, self.at, self.count, self.done = how, at, 0, False
        self.before = b""
        self.lock = threading.Lock()

    def __call__(self, frame: bytes) -> bytes | None:
        with self.lock:
            self.count += 1
            before, self.before = self.before, frame
            if self.count <= self.at or self.done or not before:
                return frame
            self.done = True
            kind, length = HEAD.unpack(frame[: HEAD.size])
            body = bytearray(frame[HEAD.size :])
            if self.how == "bit":
                body[len(body) // 2] ^= 4
            elif self.how == "shorter":
                length -= 1
            elif self.how == "longer":
                length = 2**32 - 1
            elif self.how == "withdrawn":
                kind, length = 3, 0
                body = body[-TAG:]
            elif self.how == "kind":
                kind = 77
            elif self.how == "hello":
                kind, length = 1, 0
                body = body[-TAG:]
            whole = HEAD.pack(kind, length) + bytes(body)
            return {
                "replayed": before + frame,
                "left out": b"",
                "cut": None,
                "nothing": b"\0" * len(frame),
            }.get(self.how, whole)


@pytest.mark.parametrize(
    ("how", "at"),
    [("bit", 1), ("shorter", 1), ("longer", 1), ("withdrawn", 1), ("kind", 1), ("hello", 1),
     ("replayed", 1), ("left out", 1), ("cut", 1), ("nothing", 1), ("bit", 6), ("replayed", 6)],
)  # fmt: skip
def test_who_tampers_on_the_way_ends_the_streams_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, how: str, at: int
) -> None:
    tamper = Once(how, at)
    Between(monkeypatch, tamper)
    ends = Ends()
    try:
        assert ends.bring() == ends.blob
        assert tamper.done
        ends.wait()  # made anew, with other keys
        asked = ends.by_first
        assert ends.bring() == ends.blob
        assert ends.by_first == asked, "and it is used"
    finally:
        ends.close()


def test_frames_in_another_order_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []
    swapped = threading.Event()

    def swap(frame: bytes) -> bytes:
        if threading.get_ident() in seen or swapped.is_set():
            swapped.set()
            first, kept[:] = (kept or [b""])[0], []
            return frame + first
        seen.add(threading.get_ident())
        kept[:] = [frame]
        return b""

    seen: set[int] = set()
    Between(monkeypatch, swap)
    monkeypatch.setattr(door, "how_many", lambda: 1)
    ends = Ends()
    try:
        assert ends.bring() == ends.blob
        assert swapped.is_set()
        assert ends.by_first > 0
    finally:
        ends.close()


def test_streams_that_always_break_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    Between(monkeypatch, lambda _: None)
    ends = Ends()
    try:
        for _ in range(5):
            assert ends.bring() == ends.blob
        wait_for(lambda: not ends.client._second._tries, 30, "the last try")
        wait_for(lambda: ends.bring() == ends.blob and not ends.way(ends.client), 30, "no more")
    finally:
        ends.close()


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_connection_that_is_cut_while_it_brings_loses_nothing(ends: Ends, side: str) -> None:
    bulk = getattr(ends, side)._second.bulk

    def cut(*_: int) -> None:
        for stream in bulk._streams:
            with suppress(OSError):
                stream._connection.shutdown(socket.SHUT_RDWR)

    pending = ends.client.request("bring", {}, progress=cut)
    reply = pending.wait(60)
    assert reply is not None
    assert reply.blobs[0] == ends.blob
    blob = content(5)
    assert ends.send(blob) == blob


def test_a_call_that_is_answered_after_the_end_is_hung_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall may let a call wait for as long as it likes."""
    closed, answered = threading.Event(), []
    original = door.call

    def call(host: str, port: int, keys: list[StreamKeys]) -> list[Proved]:
        answered.extend(original(host, port, keys))
        closed.wait(60)
        return list(answered)

    monkeypatch.setattr(door, "call", call)
    ends = Ends(wait=False)
    try:
        wait_for(lambda: answered, 30, "the call")
    finally:
        ends.close()
    assert any(one.fileno() != -1 for one, _ in answered)
    closed.set()
    wait_for(lambda: all(one.fileno() == -1 for one, _ in answered), 30, "hanging up")


@pytest.mark.parametrize("side", ["client", "server"])
def test_without_the_cipher_the_first_wire_does_it_and_says_why(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    here = iter([side != "client", side != "server"])
    monkeypatch.setattr(seal, "available", lambda: next(here))
    ends = Ends(wait=False)
    try:
        wait_for(lambda: ends.client.slow_because, 30, "why")
        assert "cryptography is not installed" in ends.client.slow_because
        assert ends.bring() == ends.blob
        assert ends.by_first > 0
    finally:
        ends.close()


def test_without_a_port_the_first_wire_does_it() -> None:
    ends = Ends(port=None, wait=False)
    try:
        wait_for(lambda: "no port" in ends.client.slow_because, 30, "why")
        assert ends.bring() == ends.blob
    finally:
        ends.close()


def test_a_port_behind_a_firewall_costs_nothing_but_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    original = door.call
    monkeypatch.setattr(door, "call", lambda host, _, keys: original(host, free, keys))
    ends = Ends(wait=False)
    try:
        wait_for(lambda: "cannot be reached" in ends.client.slow_because, 30, "why")
        wait_for(lambda: ends.server._second._listening is None, 30, "no listening")
        assert ends.bring() == ends.blob
        assert ends.by_first > 0
    finally:
        ends.close()


def test_who_answers_in_the_servers_place_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def answer() -> None:
            with impostor.accept()[0] as caller:
                caller.recv(NAME + HELLO)
                caller.sendall(os.urandom(HELLO))
                caller.recv(1)

        threading.Thread(target=answer, daemon=True).start()
        port, original = impostor.getsockname()[1], door.call
        monkeypatch.setattr(door, "call", lambda host, _, keys: original(host, port, keys))
        ends = Ends(wait=False)
        try:
            wait_for(lambda: "does not know the keys" in ends.client.slow_because, 30, "why")
            assert ends.bring() == ends.blob
        finally:
            ends.close()


def test_strangers_at_the_door_are_sent_away_and_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They know the name of a stream, which stands on the network, but no key."""
    strangers: list[socket.socket] = []
    original = door.call

    def call(host: str, port: int, keys: list[StreamKeys]) -> list:
        for number in range(40):
            one = socket.create_connection((host, port))
            strangers.append(one)
            if number % 4 == 0:
                one.sendall(keys[0].name + os.urandom(HELLO))
            elif number % 4 == 1:
                one.sendall(os.urandom(NAME + HELLO))
            elif number % 4 == 2:
                one.sendall(keys[1].name[:5])  # and waits
        return original(host, port, keys)

    monkeypatch.setattr(door, "call", call)
    ends = Ends()
    try:
        assert ends.bring() == ends.blob
        assert ends.by_first == 0
        for one in strangers:
            one.settimeout(30)
            with pytest.raises(ConnectionError):
                raise ConnectionResetError if not one.recv(1) else AssertionError("an answer")
    finally:
        for one in strangers:
            one.close()
        ends.close()


def test_a_hello_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    between = Between(monkeypatch, lambda frame: frame)
    listening: list[door.Listening] = []
    original = door.Listening._prove

    def prove(self: door.Listening, caller: socket.socket, said: bytes) -> bool:
        found = original(self, caller, said)
        listening.append(self)
        if found and len(listening) == 1:  # the first stream is there: say its hello again
            assert not original(self, caller, said)
        return found

    monkeypatch.setattr(door.Listening, "_prove", prove)
    ends = Ends()
    try:
        assert ends.bring() == ends.blob
        assert len(set(between.heard)) == door.how_many()
    finally:
        ends.close()


class Hostile:
    """A peer with the right keys that speaks both wires by hand."""

    def __init__(self, ends: Ends) -> None:
        assert ends.client._second.bulk is not None
        self.bulk = ends.client._second.bulk
        self.wire = ends.client

    def ask(self, stream: int, pieces: list[list[int]]) -> None:
        self.wire._post(
            [header(kind="second.fetch", bulk=self.bulk.name, stream=stream, pieces=pieces)]
        )


def test_who_asks_for_ever_and_reads_nothing_fills_no_memory(ends: Ends) -> None:
    number = 10**6
    ends.server._offers.put(number, [memoryview(ends.blob)])
    assert ends.client._second.bulk is not None
    assert ends.server._second.bulk is not None
    theirs = ends.server._second.bulk._streams[0]
    ours, go_on = ends.client._second.bulk._streams[0], threading.Event()
    ours.expect(Place(number, 0, 0, PIECE))

    def read_nothing(_: memoryview) -> None:
        go_on.wait(60)
        raise ConnectionError("at last")

    ours._fill = read_nothing  # type: ignore[assignment, method-assign]
    hostile = Hostile(ends)
    before = peak()
    for _ in range(200):
        hostile.ask(0, [[number, 0, at * PIECE] for at in range(WINDOW)])
    wait_for(lambda: "more is asked" in theirs.broken, 30, "its end")
    go_on.set()
    assert peak() - before < 64 * 2**20
    blob = content(6)
    assert ends.send(blob) == blob, "and who means well is served"


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(
    "pieces",
    [
        [[10**7, 0, 0]],
        [[10**6, 7, 0]],
        [[10**6, 0, 2**62]],
    ],
)
def test_what_is_not_offered_is_not_given(ends: Ends, pieces: list[list[int]]) -> None:
    ends.server._offers.put(10**6, [memoryview(ends.blob)])
    hostile = Hostile(ends)
    hostile.ask(0, pieces)
    hostile.ask(99, pieces)
    assert ends.bring() == ends.blob


def test_nothing_is_read_after_it_was_withdrawn(ends: Ends) -> None:
    assert ends.server._second.bulk is not None
    reached, go_on = threading.Event(), threading.Event()
    withdrawn = threading.Event()
    for stream in ends.server._second.bulk._streams:
        original = stream._sealer.seal

        def slow(data: object, about: bytes, into: memoryview, seal=original) -> None:
            reached.set()
            assert go_on.wait(30)
            seal(data, about, into)

        stream._sealer.seal = slow  # type: ignore[method-assign]
    pending = ends.client.request("bring", {})
    assert reached.wait(30)

    def withdraw() -> None:
        ends.server.withdraw()
        withdrawn.set()

    threading.Thread(target=withdraw).start()
    assert not withdrawn.wait(0.2), "a piece of it is being read"
    go_on.set()
    assert withdrawn.wait(30)
    ends.blob[:] = bytes(len(ends.blob))
    with pytest.raises(GPULeaseError, match="compute again"):
        pending.wait(60)
    assert ends.bring() == ends.blob


def test_giving_up_takes_no_time_and_leaves_the_streams(ends: Ends) -> None:
    pending = ends.client.request("bring", {})
    started = time.process_time()
    ends.client.cancel(pending)
    assert time.process_time() - started < 0.5
    with pytest.raises(GPULeaseError):
        pending.wait(1)
    assert ends.bring() == ends.blob
    assert ends.by_first == 0


def test_a_new_client_gets_new_streams(ends: Ends) -> None:
    ends.client.close()
    ends.client = Wire(lambda _: None)
    ends.count(ends.client)
    old = ends.server._second.bulk
    ends.client.connect(ends.endpoint, ends.home)
    wait_for(lambda: ends.server._second.bulk is not old and ends.way(ends.server), 30, "new ones")
    assert ends.bring() == ends.blob


class Silent(Ends):
    """A server that answers nothing."""

    def handle(self, message: Message) -> None:
        self.taken.append(message)


def test_ends_that_close_leave_no_thread() -> None:
    ends = Silent()
    threads = [*ends.client.threads, *ends.server.threads]
    pending = ends.client.request("bring", {})
    ends.close()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(GPULeaseError):
        pending.wait(1)


def test_a_door_that_makes_no_sense_is_none() -> None:
    keys = StreamKeys.new().to_json()
    good = {"port": 1, "keys": [keys]}
    assert door.read_door(good)[0] == 1
    for bad in (
        {**good, "port": 0}, {**good, "port": 2**16}, {**good, "keys": []},
        {**good, "keys": [keys] * 5}, {**good, "keys": [[keys[0], keys[1], "zz"]]},
        {**good, "keys": [[keys[0], keys[1][2:], keys[2]]]},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"door|keys|hex"):
            door.read_door(bad)


def test_keys_are_never_shown_and_never_the_same() -> None:
    keys = [StreamKeys.new() for _ in range(50)]
    assert len({part for each in keys for part in each.to_json()}) == 150
    assert not any(secret in repr(keys[0]) for secret in keys[0].to_json()[1:])
    assert repr(keys[0].to_client) not in repr(keys[0])


def test_a_stream_reads_no_frame_that_nobody_asked_for() -> None:
    ends = Ends()
    try:
        assert ends.server._second.bulk is not None
        stream = ends.server._second.bulk._streams[0]
        head = HEAD.pack(2, 5)
        frame = bytearray(5 + TAG)
        stream._sealer.seal(b"12345", head + struct.pack(">QQQ", 1, 0, 0), memoryview(frame))
        stream._connection.sendall(head + frame)
        client = ends.client._second
        wait_for(lambda: client._tries == 1, 30, "another try")
        ends.wait()
        assert ends.bring() == ends.blob
    finally:
        ends.close()


def test_frames_are_apart_on_the_network() -> None:
    """The form that the tests' middleman reads is the one that is spoken."""
    one, other = socket.socketpair()
    with one, other:
        one.sendall(HEAD.pack(2, 3) + b"abc" + bytes(TAG) + HEAD.pack(3, 0) + bytes(TAG))
        read = frames(other)
        assert len(next(read)) == HEAD.size + 3 + TAG
        assert len(next(read)) == HEAD.size + TAG


def test_what_the_wire_says_for_itself_is_called_otherwise_than_what_it_carries(ends: Ends) -> None:
    for kind in ["fetch", "cut", "ready", "door", "collect", "commit", "drop"]:
        assert ends.client.request(kind, {}).wait(60) is not None
        assert ends.taken.pop().kind == kind
