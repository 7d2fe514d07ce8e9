"""Large blobs through shared memory: right, bounded, and by the wire where it breaks."""

import errno
import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from gpulease.channel.curve import new_keys
from gpulease.errors import GPULeaseError
from gpulease.wire.connection import Wire
from gpulease.wire.lane import PIECE, SLOTS, Lane, LaneError, Said, may_be_mapped, new_file
from gpulease.wire.memory import fresh
from gpulease.wire.message import Message, header
from tests.helpers import wait_for

#: Pieces of a message, the last of them short.
PIECES = 3 * SLOTS + 1


def content(seed: int) -> bytearray:
    return bytearray(os.urandom(PIECE) * (PIECES - 1) + os.urandom(7 + seed))


class Ends:
    """A client and a server in this process; ``by_wire`` counts pieces that went by messages."""

    def __init__(self) -> None:
        self.blob = content(1)
        self.taken: list[Message] = []
        self.server = Wire(self.handle)
        self.client = Wire(lambda _: None)
        home = new_keys()
        endpoint = self.server.listen(home.public, "127.0.0.1")
        self.by_wire = 0
        for wire in (self.client, self.server):
            self.count(wire)
        self.client.connect(endpoint, home)
        wait_for(lambda: self.lane(self.server) and self.lane(self.client), 30, "the lane")

    def count(self, wire: Wire) -> None:
        answer = wire._offers.answer

        def counted(head: dict) -> list:
            self.by_wire += 1
            return answer(head)

        wire._offers.answer = counted  # type: ignore[method-assign]

    def lane(self, wire: Wire) -> Lane | None:
        return wire._shortcut.lane

    def handle(self, message: Message) -> None:
        self.taken.append(message)
        self.server.reply(message, {}, [self.blob] if message.kind == "bring" else [])

    def bring(self) -> bytes:
        reply = self.client.request("bring", {}).wait(60)
        assert reply is not None
        return bytes(reply.blobs[0])

    def send(self, blob: bytearray) -> bytes:
        assert self.client.request("put", {}, [blob]).wait(60) is not None
        return bytes(self.taken.pop().blobs[0])


@pytest.fixture
def ends() -> Iterator[Ends]:
    each = Ends()
    yield each
    each.client.close()
    each.server.close()


def test_large_blobs_take_the_lane_both_ways(ends: Ends) -> None:
    blob = content(2)
    for _ in range(3):
        assert ends.bring() == ends.blob
        assert ends.send(blob) == blob
    assert ends.by_wire == 0
    for wire in (ends.client, ends.server):
        lane = ends.lane(wire)
        assert lane is not None
        assert os.fstat(lane._mine).st_size <= SLOTS * PIECE, "what is on its way is bounded"


def test_two_messages_share_it(ends: Ends) -> None:
    pending = [ends.client.request("bring", {}) for _ in range(5)]
    blob = content(3)
    assert ends.send(blob) == blob
    replies = [each.wait(60) for each in pending]
    assert all(reply is not None and reply.blobs[0] == ends.blob for reply in replies)
    assert ends.by_wire == 0


def breaks(lane: Lane, how: str, at: int) -> None:
    """Let a lane break at its piece number ``at``."""
    count = 0
    original: Callable = getattr(lane, how)

    def broken(*args: object) -> None:
        nonlocal count
        count += 1
        if count > at:
            raise LaneError("broken by the test")
        original(*args)

    setattr(lane, how, broken)


@pytest.mark.parametrize(
    ("how", "at"),
    [("put", 0), ("put", SLOTS), ("put", PIECES - 1), ("take", 0), ("take", SLOTS), ("given", 1)],
)
def test_a_lane_that_breaks_at_any_piece_loses_nothing(ends: Ends, how: str, at: int) -> None:
    lane = ends.lane(ends.client if how == "take" else ends.server)
    assert lane is not None
    breaks(lane, how, at)
    assert ends.bring() == ends.blob
    assert ends.by_wire > 0
    blob = content(4)
    assert ends.send(blob) == blob, "and the wire goes on without it"
    assert ends.lane(ends.client) is None
    assert ends.lane(ends.server) is None


def test_where_no_memory_can_be_had_for_a_piece_the_wire_goes_on(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To write there all the same would end the process."""

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert ends.bring() == ends.blob
    assert ends.by_wire == PIECES


def test_a_server_that_cannot_be_met_is_as_good_without_a_lane(ends: Ends) -> None:
    """As on another machine: nobody listens there by that name."""
    lane = ends.lane(ends.client)
    assert lane is not None
    lane._connection.shutdown(socket.SHUT_RDWR)
    wait_for(lambda: not ends.lane(ends.client) and not ends.lane(ends.server), 30, "no lane")
    nowhere = {"name": "gpulease-nobody", "call": "a", "answer": "b"}
    ends.client._post([header(kind="near", **nowhere)])
    assert ends.bring() == ends.blob
    assert ends.by_wire > 0


def test_nothing_is_read_after_it_was_withdrawn(ends: Ends) -> None:
    lane = ends.lane(ends.server)
    assert lane is not None
    put, reached, go_on = lane.put, threading.Event(), threading.Event()

    def slow(slot: int, data: memoryview) -> None:
        put(slot, data)
        reached.set()
        assert go_on.wait(30)

    lane.put = slow  # type: ignore[method-assign]
    pending = ends.client.request("bring", {})
    assert reached.wait(30)
    withdrawing = threading.Thread(target=ends.server.withdraw)
    withdrawing.start()
    assert withdrawing.is_alive(), "a piece that is being read is waited for"
    go_on.set()
    withdrawing.join(30)
    lane.put = put  # type: ignore[method-assign]
    with pytest.raises(GPULeaseError) as refused:
        pending.wait(30)
    assert refused.value.reason == "transfer_abandoned"
    assert ends.bring() == ends.blob


def test_who_does_not_wait_any_more_frees_what_was_on_its_way(ends: Ends) -> None:
    for _ in range(2 * SLOTS):
        ends.client.cancel(ends.client.request("bring", {}))
    assert ends.bring() == ends.blob
    assert ends.by_wire == 0


@pytest.fixture
def pair() -> Iterator[tuple[Lane, socket.socket, int]]:
    """One end of a lane, and the bare socket and file at its other end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    file = new_file()
    lane = Lane(ours, new_file(), os.dup(file))
    yield lane, theirs, file
    lane.close()
    theirs.close()
    os.close(file)


def test_a_piece_that_comes_twice_ends_the_lane(pair: tuple[Lane, socket.socket, int]) -> None:
    lane, peer, file = pair
    lane.ask(5, 0, 0)
    asked = peer.recv(100)
    os.pwrite(file, b"abc", (SLOTS - 1) * PIECE)
    given = b"\2" + asked[1:-8] + (3).to_bytes(8, "little")
    for _ in range(2):
        peer.send(given)
    into = bytearray(3)
    one, two = lane.messages()
    lane.take(one, memoryview(into))
    assert into == b"abc"
    with pytest.raises(LaneError):
        lane.take(two, memoryview(into))


@pytest.mark.parametrize("data", [b"x", b"\2" * 40, b"\7" + bytes(40), b"\1" * 42, b""])
def test_what_is_no_message_ends_the_lane(
    pair: tuple[Lane, socket.socket, int], data: bytes
) -> None:
    lane, peer, _ = pair
    peer.send(data) if data else peer.close()
    with pytest.raises(LaneError):
        list(lane.messages())


@pytest.mark.parametrize("slot", [0, SLOTS, 2**40])
def test_only_a_slot_that_was_asked_for_is_read(
    pair: tuple[Lane, socket.socket, int], slot: int
) -> None:
    lane, _, _ = pair
    with pytest.raises(LaneError):
        lane.take(Said(2, 1, 0, 0, slot, 3), memoryview(bytearray(3)))
    if slot:
        with pytest.raises(LaneError):
            lane.put(slot, memoryview(b"abc"))


def test_nobody_can_cut_a_lane_short(pair: tuple[Lane, socket.socket, int]) -> None:
    """To read what was cut off would end the process."""
    _, _, file = pair
    for size in (0, PIECE, 2 * SLOTS * PIECE):
        with pytest.raises(PermissionError):
            os.ftruncate(file, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_GROW, fcntl.F_SEAL_WRITE])
@pytest.mark.parametrize("size", [0, SLOTS * PIECE])
def test_what_could_be_cut_short_is_not_mapped(seals: int, size: int) -> None:
    file = os.memfd_create("other", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    assert not may_be_mapped(file)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    assert may_be_mapped(file) == bool(size)
    os.close(file)


def test_memory_in_the_systems_huge_pages_is_not_mapped() -> None:
    """There may be none when it is read, which would end the process."""
    file = os.memfd_create("h", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
    os.ftruncate(file, SLOTS * PIECE)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    assert not may_be_mapped(file)
    os.close(file)


def test_fresh_memory_is_a_byte_array_of_its_size() -> None:
    for size in (0, 1, 2**22 - 1, 2**22, 2**25 + 3):
        memory = fresh(size)
        assert isinstance(memory, bytearray)
        assert len(memory) == size
        memory[-1:] = b"z" if size else b""
        memory += b"more"
        assert memory.endswith(b"more")
    with pytest.raises((MemoryError, OverflowError)):
        fresh(2**63)
    with pytest.raises(MemoryError):
        fresh(2**61)
