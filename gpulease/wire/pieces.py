"""Large blobs, piece by piece: what this side offers, and what it is pulling.

The receiver pulls and checks its memory first: to give up, it stops asking for the next piece.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpulease.errors import GPULeaseError
from gpulease.wire.lane import PIECE, Lane, Said
from gpulease.wire.message import (
    Message,
    Pending,
    header,
    malformed_error,
    no_memory_error,
    withdrawn_error,
)
from gpulease.wire.stream import Came

#: Pieces asked for ahead; bounds what is on its way when a transfer is given up.
WINDOW = 32
#: Messages that wait to be taken at a time; a peer that takes none gets the newest.
_OFFERS = 32
#: Messages whose blobs are smaller than this in all carry them along.
INLINE = 2**20


class Way(Protocol):
    """How pieces may come other than by messages: the receiver's end of it."""

    @property
    def room(self) -> bool:
        """True while another piece may be asked for."""

    def ask(self, offer: int, blob: int, at: int, length: int, /) -> None:
        """Ask for a piece; there must be room."""

    def flush(self) -> None:
        """Send what was asked for."""


@dataclass
class _Offer:
    views: list[memoryview]
    given: set[tuple[int, int]] = field(default_factory=set)  # blob, and where in it
    readers: int = 0


class Offers:
    """Memory of this process that the other side may read, each piece once; any thread.

    What is given waits in this process until it is taken: who asks for ever and takes nothing
    makes no more of it than there is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read = threading.Condition(self._lock)
        self._offers: dict[int, _Offer] = {}

    def put(self, number: int, views: list[memoryview]) -> None:
        """Offer the blobs of message ``number``."""
        with self._lock:
            self._offers[number] = _Offer(views)
            while len(self._offers) > _OFFERS:
                self._withdraw(next(iter(self._offers)))

    def drop(self, number: int) -> None:
        """Offer them no longer: nothing of them is read after this returns."""
        with self._lock:
            self._withdraw(number)

    def clear(self) -> None:
        """Offer nothing: nothing is read after this returns."""
        with self._lock:
            for number in list(self._offers):
                self._withdraw(number)

    def _withdraw(self, number: int) -> None:
        offer = self._offers.pop(number, None)
        if offer is not None:  # who reads a piece of it now is done in a moment
            self._read.wait_for(lambda: not offer.readers)

    @contextmanager
    def lend(self, number: int, blob: int, at: int) -> Iterator[memoryview | None]:
        """Lend the memory of a piece for as long as it is read, or None if it was withdrawn.

        As often as it is asked for: who reads it has memory of its own.
        """
        with self._lock:
            found, offer = self._find(number, blob, at), self._offers.get(number)
            if found is not None and offer is not None:
                offer.readers += 1
        try:
            yield found
        finally:
            if found is not None and offer is not None:
                found.release()
                with self._lock:
                    offer.readers -= 1
                    self._read.notify_all()

    def answer(self, head: dict[str, Any]) -> list[Any]:
        """Return the message that gives the piece asked for, or says that it was withdrawn."""
        with self._lock:
            number, blob, at = head["offer"], head["blob"], head["at"]
            found = self._find(number, blob, at)
            if found is not None and (blob, at) in self._offers[number].given:
                found = None
            if found is not None:
                self._offers[number].given.add((blob, at))
            piece = b"" if found is None else bytes(found)
        where = {"offer": number, "blob": blob, "at": at}
        if found is None:
            return [header(kind="piece", **where, withdrawn=True), b""]
        return [header(kind="piece", **where), piece]

    def put_into(self, lane: Lane, said: Said) -> None:
        """Put the piece asked for into its slot, or say that it was withdrawn.

        As often as it is asked for: it takes no memory that is not there already.
        """
        with self._lock:
            found = self._find(said.offer, said.blob, said.at)
            if found is not None:
                lane.put(said.slot, found)
        lane.given(said, None if found is None else found.nbytes)

    def _find(self, number: int, blob: int, at: int) -> memoryview | None:
        offer = self._offers.get(number)
        if offer is None or blob >= len(offer.views):
            return None
        view = offer.views[blob]
        return view[at : at + PIECE] if at in range(0, view.nbytes, PIECE) else None


@dataclass(frozen=True)
class Asked:
    """How long a piece is that was asked for, and by which way (None: by messages)."""

    length: int
    by: Way | None


@dataclass
class _Pull:
    message: Message
    total: int
    received: int = 0
    asked: dict[tuple[int, int], Asked] = field(default_factory=dict)
    todo: collections.deque[tuple[int, int]] = field(default_factory=collections.deque)

    def place(self, blob: int, at: int, length: int) -> memoryview:
        """Return where a piece belongs; to be let go of soon, for a value may resize its memory."""
        return memoryview(self.message.blobs[blob]).cast("B")[at : at + length]


@dataclass
class Pulls:
    """Messages whose blobs are on their way here; the wire's thread only.

    ``post`` sends; ``pending`` finds who waits for a reply; ``accept`` is asked before memory is
    taken; ``memory`` takes it, for blobs of these sizes; ``complete`` and ``refuse`` get a message
    with what became of it.
    """

    post: Callable[[list[Any]], None]
    pending: Callable[[int], Pending | None]
    accept: Callable[[int], GPULeaseError | None]
    memory: Callable[[dict[str, Any], list[int]], list[Any]]
    complete: Callable[[Message], None]
    refuse: Callable[[Message, GPULeaseError], None]
    _pulls: dict[int, _Pull] = field(default_factory=dict)
    _way: Way | None = None

    def use(self, way: Way) -> None:
        """Ask by ``way`` from now on."""
        self._way = way
        self._fill()

    def leave(self, way: Way) -> None:
        """Ask by messages again: also for what was asked for by ``way`` and did not come."""
        if self._way is way:
            self._way = None
        for pull in self._pulls.values():
            lost = [where for where, asked in pull.asked.items() if asked.by is way]
            for where in lost:
                del pull.asked[where]
            pull.todo.extendleft(reversed(lost))
        self._fill()

    def begin(self, message: Message, sizes: list[int], beside: int = 0) -> None:
        """Take memory for the blobs of ``message`` and ask for the first pieces.

        ``beside``: bytes that whoever gets it will need as well.
        """
        total = sum(sizes)
        refusal = self.accept(total + beside)
        if refusal is not None:
            self.decline(message.number)
            self.refuse(message, refusal)
            return
        try:
            message.blobs = self.memory(message.body, sizes)
        except (MemoryError, OverflowError):
            self.decline(message.number)
            self.refuse(message, no_memory_error(total))
            return
        pull = _Pull(message, total)
        pull.todo.extend(
            (blob, at) for blob, size in enumerate(sizes) for at in range(0, size, PIECE)
        )
        self._pulls[message.number] = pull
        if not total:
            self._finish(pull)
            return
        self._fill()

    def decline(self, number: int) -> None:
        """Say that nothing more of that message is wanted."""
        self.post([header(kind="got", offer=number)])

    def piece(self, head: dict[str, Any], data: Any) -> None:
        """Enter one piece; with the last one the message is complete.

        A piece that was not asked for, or has another length, ends the message: memory never grows
        by what the other side sends.
        """
        pull = self._pulls.get(head["offer"])
        if pull is None:
            return
        if head.get("withdrawn"):
            self._withdrawn(pull)
            return
        where = (head["blob"], head["at"])
        if pull.asked.get(where) != Asked(len(data), None):
            self._give_up(pull, malformed_error())
            return
        pull.place(*where, len(data))[:] = data
        self._entered(pull, where)

    def given(self, lane: Lane, said: Said) -> None:
        """Enter one piece that came by a lane, by the same rules."""
        pull, where = self._pulls.get(said.offer), (said.blob, said.at)
        wanted = pull is not None and pull.asked.get(where) == Asked(said.length, lane)
        if pull is None or said.withdrawn or not wanted:
            lane.take(said, None)
            if pull is not None and said.withdrawn:
                self._withdrawn(pull)
            elif pull is not None:
                self._give_up(pull, malformed_error())
            self._fill()
            return
        lane.take(said, pull.place(*where, said.length))
        self._entered(pull, where)

    def target(self, number: int, blob: int, at: int, length: int) -> memoryview | None:
        """Return where a piece that was asked for belongs, or None if nobody waits for it.

        Any thread that brings pieces, which lets go of it before ``brought`` tells of the piece.
        """
        pull = self._pulls.get(number)
        return None if pull is None else pull.place(blob, at, length)

    def brought(self, way: Way, pieces: Iterable[Came]) -> None:
        """Enter pieces that stand in their places already."""
        some = False
        for came in pieces:
            some = True
            place = came.place
            pull, where = self._pulls.get(place.offer), (place.blob, place.at)
            if pull is None or pull.asked.get(where) != Asked(place.length, way):
                continue
            if came.withdrawn:
                self._withdrawn(pull)
            else:
                self._count(pull, where)
        if some:
            self._fill()

    def _entered(self, pull: _Pull, where: tuple[int, int]) -> None:
        self._count(pull, where)
        self._fill()

    def _count(self, pull: _Pull, where: tuple[int, int]) -> None:
        pull.received += pull.asked.pop(where).length
        waiting = self.pending(pull.message.reply_to or 0)
        if waiting is not None and waiting.progress is not None:
            waiting.progress(pull.received, pull.total)
        if pull.received == pull.total:
            self._finish(pull)

    def _withdrawn(self, pull: _Pull) -> None:
        del self._pulls[pull.message.number]
        self.refuse(pull.message, withdrawn_error())

    def clear(self) -> None:
        """Forget what was on its way."""
        self._pulls.clear()

    def _finish(self, pull: _Pull) -> None:
        del self._pulls[pull.message.number]
        self.decline(pull.message.number)
        self.complete(pull.message)

    def _give_up(self, pull: _Pull, why: GPULeaseError) -> None:
        del self._pulls[pull.message.number]
        self.decline(pull.message.number)
        self.refuse(pull.message, why)

    def _fill(self) -> None:
        """Ask for as many pieces as may be on their way, first for messages that wait for few."""
        for pull in sorted(self._pulls.values(), key=lambda each: len(each.asked)):
            to = pull.message.reply_to
            if to is not None and self.pending(to) is None:
                self._pulls.pop(pull.message.number, None)
                self.decline(pull.message.number)
                continue
            while pull.todo and self._room(pull):
                self._ask(pull)
        if self._way is not None:
            self._way.flush()

    def _room(self, pull: _Pull) -> bool:
        return self._way.room if self._way is not None else len(pull.asked) < WINDOW

    def _ask(self, pull: _Pull) -> None:
        number, (blob, at) = pull.message.number, pull.todo.popleft()
        length = min(PIECE, len(pull.message.blobs[blob]) - at)
        pull.asked[blob, at] = Asked(length, self._way)
        if self._way is not None:
            self._way.ask(number, blob, at, length)
        else:
            self.post([header(kind="get", offer=number, blob=blob, at=at)])
