"""Large blobs, piece by piece: what this side offers, and what it is pulling.

The receiver pulls and checks its memory first: giving up is not asking for the next piece.  Owns
the pieces' bookkeeping; it knows no sockets and no variables.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.wire.message import (
    Message,
    Pending,
    header,
    malformed_error,
    no_memory_error,
    withdrawn_error,
)

PIECE = 4 * 2**20
#: Pieces asked for ahead; bounds what is on its way when a transfer is given up.
WINDOW = 8
#: Messages that wait to be taken at a time; a peer that takes none gets the newest.
_OFFERS = 32
#: Messages whose blobs are smaller than this in all carry them along.
INLINE = 2**20


@dataclass
class _Offer:
    views: list[memoryview]
    given: set[tuple[int, int]] = field(default_factory=set)  # blob, and where in it


class Offers:
    """Memory of this process that the other side may read, each piece once; any thread.

    What is given waits in this process until it is taken: who asks for ever and takes nothing
    makes no more of it than there is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offers: dict[int, _Offer] = {}

    def put(self, number: int, views: list[memoryview]) -> None:
        """Offer the blobs of message ``number``."""
        with self._lock:
            self._offers[number] = _Offer(views)
            while len(self._offers) > _OFFERS:
                del self._offers[next(iter(self._offers))]

    def drop(self, number: int) -> None:
        """Offer them no longer."""
        with self._lock:
            self._offers.pop(number, None)

    def clear(self) -> None:
        """Offer nothing: nothing is read after this returns."""
        with self._lock:
            self._offers.clear()

    def answer(self, head: dict[str, Any]) -> list[Any]:
        """Return the message that gives the piece asked for, or says that it was withdrawn."""
        with self._lock:
            blob, at = head["blob"], head["at"]
            offer = self._offers.get(head["offer"])
            there = (
                offer is not None
                and blob < len(offer.views)
                and at in range(0, offer.views[blob].nbytes, PIECE)
                and (blob, at) not in offer.given
            )
            piece = b""
            if offer is not None and there:
                offer.given.add((blob, at))
                piece = bytes(offer.views[blob][at : at + PIECE])
        where = {"offer": head["offer"], "blob": head["blob"], "at": at}
        if not there:
            return [header(kind="piece", **where, withdrawn=True), b""]
        return [header(kind="piece", **where), piece]


@dataclass
class _Pull:
    message: Message
    total: int
    received: int = 0
    asked: dict[tuple[int, int], int] = field(default_factory=dict)  # and how long each is
    todo: collections.deque[tuple[int, int]] = field(default_factory=collections.deque)


@dataclass
class Pulls:
    """Messages whose blobs are on their way here; the wire's thread only.

    ``post`` sends; ``pending`` finds who waits for a reply; ``accept`` is asked before memory is
    taken; ``complete`` and ``refuse`` get a message with what became of it.
    """

    post: Callable[[list[Any]], None]
    pending: Callable[[int], Pending | None]
    accept: Callable[[int], GPULeaseError | None]
    complete: Callable[[Message], None]
    refuse: Callable[[Message, GPULeaseError], None]
    _pulls: dict[int, _Pull] = field(default_factory=dict)

    def begin(self, message: Message, sizes: list[int]) -> None:
        """Take memory for the blobs of ``message`` and ask for the first pieces."""
        total = sum(sizes)
        refusal = self.accept(total)
        if refusal is not None:
            self.decline(message.number)
            self.refuse(message, refusal)
            return
        try:
            message.blobs = [bytearray(size) for size in sizes]
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
        for _ in range(WINDOW):
            self._ask(pull)

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
            del self._pulls[head["offer"]]
            self.refuse(pull.message, withdrawn_error())
            return
        where = (head["blob"], head["at"])
        if pull.asked.pop(where, None) != len(data):
            self._give_up(pull, malformed_error())
            return
        pull.message.blobs[head["blob"]][head["at"] : head["at"] + len(data)] = data
        pull.received += len(data)
        waiting = self.pending(pull.message.reply_to or 0)
        if waiting is not None and waiting.progress is not None:
            waiting.progress(pull.received, pull.total)
        if pull.received < pull.total:
            self._ask(pull)
            return
        self._finish(pull)

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

    def _ask(self, pull: _Pull) -> None:
        to = pull.message.reply_to
        if to is not None and self.pending(to) is None:
            self._pulls.pop(pull.message.number, None)
            self.decline(pull.message.number)
            return
        if pull.todo:
            blob, at = pull.todo.popleft()
            pull.asked[blob, at] = min(PIECE, len(pull.message.blobs[blob]) - at)
            self.post([header(kind="get", offer=pull.message.number, blob=blob, at=at)])
