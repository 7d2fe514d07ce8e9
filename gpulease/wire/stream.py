"""One connection of the second wire: pieces both ways, each sealed, in the order they were asked.

Two threads of a connection wait for the network and seal while other threads run.  A frame holds
its kind, its length, what is sealed and its tag.  The receiver asked for it and so knows what comes
next; the tag proves what the frame holds, with all that was asked for.  After a peer breaks these
rules nothing more of it is read.
"""

from __future__ import annotations

import collections
import logging
import queue
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from gpulease.wire.lane import PIECE
from gpulease.wire.seal import TAG, Opener, Sealer, SealError

log = logging.getLogger(__name__)

#: Pieces that may be on their way to one side by one stream.
WINDOW = 8
#: Left on their way when more are asked for, so that one message asks for several.
_AGAIN = WINDOW // 2
_HEAD = struct.Struct(">BI")
_PLACE = struct.Struct(">QQQ")
_HELLO, _GIVEN, _WITHDRAWN = 1, 2, 3
#: Bytes of a hello.
HELLO = _HEAD.size + TAG

#: Finds the memory of a piece to send; None where it is not offered any more.
Lend = Callable[[int, int, int], AbstractContextManager["memoryview | None"]]
#: Finds where a piece that was asked for is to stay; None where it is not wanted any more.
Target = Callable[[int, int, int, int], "memoryview | None"]


@dataclass(frozen=True)
class Place:
    """A piece: of which blob of which offer, from where on, and how long it is."""

    offer: int
    blob: int
    at: int
    length: int

    @property
    def packed(self) -> bytes:
        """What is proved of it beside its bytes."""
        return _PLACE.pack(self.offer, self.blob, self.at)


@dataclass(frozen=True)
class Came:
    """A piece stands where it belongs, or is withdrawn."""

    place: Place
    withdrawn: bool


def hello(sealer: Sealer, name: bytes) -> bytes:
    """Return what proves to the other end that this one knows the keys of stream ``name``."""
    head = _HEAD.pack(_HELLO, 0)
    tag = bytearray(TAG)
    sealer.seal(b"", head + name, memoryview(tag))
    return head + tag


def heard(opener: Opener, name: bytes, said: bytes) -> bool:
    """Say whether this is the other end's ``hello``; it may be asked once of an opener."""
    try:
        opener.open(said[_HEAD.size :], _HEAD.pack(_HELLO, 0) + name, memoryview(bytearray(0)))
    except SealError:
        return False
    return said[: _HEAD.size] == _HEAD.pack(_HELLO, 0)


class Stream:
    """One end, once both have proved themselves.

    Args:
        connection: a TCP connection.
        seals: for what goes, and for what comes.
        lend: see ``Lend``; called on the stream's own thread.
        target: see ``Target``; also.
        news: called when ``came`` has more, or ``broken`` is set.
    """

    def __init__(
        self,
        connection: socket.socket,
        seals: tuple[Sealer, Opener],
        lend: Lend,
        target: Target,
        news: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._sealer, self._opener = seals
        self._lend, self._target, self._news = lend, target, news
        self._expected: collections.deque[Place] = collections.deque()
        self._to_send: queue.SimpleQueue[Place | None] = queue.SimpleQueue()
        self._filling = True
        #: What has come, oldest first: for whoever gets ``news``.
        self.came: collections.deque[Came] = collections.deque()
        self.broken = ""
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=f"gpulease-{name}", daemon=True)
            for name, work in (("bulk-in", self._read), ("bulk-out", self._write))
        ]

    def start(self) -> None:
        """Begin to read and to write."""
        for option, value in _ALIVE:
            with suppress(OSError):
                self._connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connection.setblocking(True)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End both threads: no memory of a value is read or written after this returns."""
        self._to_send.put(None)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._connection.close()

    @property
    def threads(self) -> list[threading.Thread]:
        """The two threads."""
        return self._threads

    # ---- the wire's thread

    @property
    def waits(self) -> int:
        """How many pieces are on their way here."""
        return len(self._expected)

    @property
    def room(self) -> bool:
        """True while another piece may be asked for; they are asked for several at a time."""
        if self.waits <= _AGAIN:
            self._filling = True
        elif self.waits >= WINDOW:
            self._filling = False
        return self._filling

    def expect(self, place: Place) -> None:
        """This piece is asked for of the other end, after all those before."""
        self._expected.append(place)

    def give(self, place: Place) -> None:
        """The other end asked for this piece."""
        if self._to_send.qsize() >= 4 * WINDOW:
            self._break("more is asked for than can be wanted")
        else:
            self._to_send.put(place)

    # ---- its own threads

    def _run(self, work: Callable[[], None]) -> None:
        why = "it was closed"
        try:
            work()
        except (OSError, SealError) as error:
            why = str(error) or type(error).__name__
        finally:  # whatever ended it: nobody may wait for what this thread would have done
            self._break(why)

    def _break(self, why: str) -> None:
        self.broken = self.broken or why
        self._news()

    def _write(self) -> None:
        frame = memoryview(bytearray(_HEAD.size + PIECE + TAG))
        while (place := self._to_send.get()) is not None:
            with self._lend(place.offer, place.blob, place.at) as piece:
                kind, length = (_WITHDRAWN, 0) if piece is None else (_GIVEN, piece.nbytes)
                end = _HEAD.size + length + TAG
                head = frame[: _HEAD.size]
                head[:] = _HEAD.pack(kind, length)
                data = b"" if piece is None else piece
                self._sealer.seal(data, bytes(head) + place.packed, frame[_HEAD.size : end])
            self._connection.sendall(frame[:end])

    def _read(self) -> None:
        frame = memoryview(bytearray(PIECE + TAG))
        head = memoryview(bytearray(_HEAD.size))
        while True:
            self._fill(head)
            kind, length = _HEAD.unpack(head)
            if not self._expected:
                raise SealError("a frame that nobody asked for")
            place = self._expected[0]
            if length != {_GIVEN: place.length, _WITHDRAWN: 0}.get(kind):
                raise SealError("a frame of another length than was asked for")
            self._fill(frame[: length + TAG])
            about = bytes(head) + place.packed
            self._open(frame[: length + TAG], about, place, wanted=kind == _GIVEN)
            self.came.append(Came(place, kind == _WITHDRAWN))
            self._expected.popleft()
            if self.waits % _AGAIN == 0 or kind == _WITHDRAWN:
                self._news()

    def _open(self, sealed: memoryview, about: bytes, place: Place, *, wanted: bool) -> None:
        into = None
        if wanted:
            into = self._target(place.offer, place.blob, place.at, place.length)
        if into is None:
            into = memoryview(bytearray(len(sealed) - TAG))
        try:
            self._opener.open(sealed, about, into)
        finally:
            into.release()  # a value may resize its memory

    def _fill(self, into: memoryview) -> None:
        got = 0
        while got < into.nbytes:
            more = self._connection.recv_into(into[got:], 0, socket.MSG_WAITALL)
            if not more:
                raise ConnectionError("the peer hung up")
            got += more


#: A peer that is not there is noticed within half a minute, as by the wire itself.
_ALIVE = (
    (socket.TCP_NODELAY, 1),
    (socket.TCP_KEEPIDLE, 10),
    (socket.TCP_KEEPINTVL, 5),
    (socket.TCP_KEEPCNT, 4),
    (socket.TCP_USER_TIMEOUT, 30_000),
)
