"""Brings home, in the background, what GPU cells changed, without changing the owner.

Owns the thread that asks the companion for the rest after a reply: first what is small, then each
large name.  It only receives: loading and committing is the main thread's, between cells.  A pass
is given up as soon as a cell starts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

from gpulease.errors import GPULeaseError
from gpulease.transfer_next.peer import Peer
from gpulease.wire.message import Message, Pending

from .arrivals import Arrivals

#: Seconds after a cell before everything is looked at, at least and at most.
_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
#: How often a pass asks for one name: what does not load at home comes sealed the next time.
_TRIES = 4

log = logging.getLogger(__name__)


class WriteBehind:
    """One background thread for one connection; ``settled`` is set when nothing is left to do."""

    def __init__(self, peer: Peer, arrivals: Arrivals) -> None:
        self._peer = peer
        self._arrivals = arrivals
        self._work = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self.settled = threading.Event()
        self._hurry = threading.Event()  # ends a rest before its time
        self._rest_until = 0.0
        self._took = 0.0
        self._paused = False
        self._everything = False
        self._stop = False
        self._pending: Pending | None = None
        self._late: Pending | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="gpulease-writebehind", daemon=True)
        self._thread.start()

    # ---- called on the main thread

    def wake(self, late: Pending | None = None, *, everything: bool = False) -> None:
        """Start a pass; ``late`` is a reply that the cell did not wait for.

        With ``everything`` it does not wait for commits: a home cell may run for long, and the
        lease ends.  What is staged by then is committed after that cell.
        """
        with self._lock:
            self._paused = False
            self._everything = everything
            self._late = late
            self.settled.clear()
            pause = min(max(_PAUSE, self._took / 4), _LONGEST_PAUSE)
            self._rest_until = time.monotonic() + pause
            self._hurry.set() if everything or late is not None else self._hurry.clear()
        self._work.set()
        if everything:
            self._arrivals.release_waiting()

    def pause(self) -> None:
        """Give up the pass and wait until the thread rests."""
        with self._lock:
            self._paused = True
            pending, self._late = self._pending, None
        self._work.clear()
        wire = self._peer.wire
        if pending is not None and wire is not None:
            wire.cancel(pending)
        self._arrivals.release_waiting()
        while not self._idle.wait(0.01):  # it may just have staged something
            self._arrivals.release_waiting()

    def close(self) -> None:
        """End the thread."""
        self._stop = True
        self.pause()
        self._hurry.set()
        self._work.set()
        self._thread.join(5)

    # ---- the thread

    def _run(self) -> None:
        while True:
            self._work.wait()
            self._rest()
            if self._stop:
                return
            with self._lock:
                if not self._paused and self._left_to_rest() > 0:
                    continue  # a cell came and went meanwhile
                self._work.clear()
                if self._paused:
                    continue
                self._idle.clear()
            try:
                self._pass()
            except GPULeaseError as error:
                log.debug("write-behind stopped: %s", error.reason)
            except Exception:
                # A pass changes nothing: what is away stays away, and the next one asks again.
                log.exception("write-behind failed")
            finally:
                self._idle.set()

    def _pass(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            if self._stage(self._wait(late)):
                self._then_rest()
            return
        started = time.monotonic()
        message = self._ask("collect", {"touched": None, "room": self._peer.room()})
        self._took = time.monotonic() - started
        if not self._stage(message):
            return
        tried: Counter[str] = Counter()
        while not self._paused:
            left = [n for n in self._arrivals.names_to_bring() if tried[n] < _TRIES]
            if not left:
                self.settled.set()
                return
            tried[left[0]] += 1
            try:
                self._stage(self._ask("fetch", {"names": [left[0]], "strict": True}))
            except GPULeaseError as error:
                if error.reason in ("cannot_move", "too_big_for_home"):
                    self._arrivals.note_blocker(left[0], error)
                    continue
                raise

    def _rest(self) -> None:
        """Let the notebook pause before everything is looked at: a cell may follow at once.

        A cell that does ends no rest, and waits for none: it costs this thread nothing.
        """
        while (left := self._left_to_rest()) > 0:
            self._hurry.wait(left)

    def _left_to_rest(self) -> float:
        return 0.0 if self._hurry.is_set() else self._rest_until - time.monotonic()

    def _then_rest(self) -> None:
        """What the cell itself changed is here; the rest is looked at after a pause."""
        with self._lock:
            if not self._paused:
                if not self._everything:
                    self._hurry.clear()
                self._work.set()

    def _ask(self, kind: str, body: dict[str, object]) -> Message:
        wire = self._peer.wire
        if wire is None or self._paused:
            raise GPULeaseError("interrupted", "Paused.")
        pending = wire.request(kind, body)
        return self._wait(pending)

    def _wait(self, pending: Pending) -> Message:
        with self._lock:
            self._pending = pending
            paused = self._paused
        wire = self._peer.wire
        if paused and wire is not None:
            wire.cancel(pending)
        try:
            message = pending.wait()
        finally:
            with self._lock:
                self._pending = None
        assert message is not None
        return message

    def _stage(self, message: Message) -> bool:
        """Hand over to the main thread and wait until it is committed; False when given up."""
        if message.body.get("current"):
            return True
        arrival = self._arrivals.stage(message)
        if not self._everything:
            arrival.done.wait()
        return not self._paused
