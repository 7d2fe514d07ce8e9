"""What one side sends and brings, with what has to hold on both before and after."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from gpulease.errors import GPULeaseError
from gpulease.sides import last_error
from gpulease.sides.state.process_state import ProcessState
from gpulease.wire.message import Message

from . import commit, shipping
from .api import Absent, Note, Place, Progress, StageError
from .messages import unforeseen
from .missing import Large, Missing
from .peer import Peer
from .reached import Reached
from .structure import ShowingSide, Structures

Brought = tuple[tuple[str, ...], int]  # names, bytes


_P = ParamSpec("_P")
_R = TypeVar("_R")


def refusing(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let refusals of ``method`` pass with no frame of it, and make one of what nobody foresaw.

    A front end keeps the last exception for ``%tb``; the frames of a refused switch would keep
    every value alive that the switch looked at.  And a value's own code may raise anything: a
    request of the front end's that only a refusal can end would have no answer.
    """

    @functools.wraps(method)
    def bare(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except GPULeaseError as error:
            error.__cause__ = error.__context__ = None
            raise error.with_traceback(None) from None
        except Exception:  # noqa: BLE001 - it is logged
            failure = unforeseen(method.__name__)
        raise failure

    return bare


class Exchange:
    """Home's; one exchange with the companion at a time (``_exchange``)."""

    def __init__(
        self, side: ShowingSide, state: ProcessState, peer: Peer, small: int, reached: Reached
    ) -> None:
        self.side = side
        self._reached = reached
        self.state = state
        self.peer = peer
        self._large = Large(peer.room)
        self._missing = Missing(side, self._large)
        self._structures = Structures(side, peer)
        self._small = small
        #: A drain has it on another thread.
        self._exchange = threading.RLock()
        self._arrived: list[Message] = []
        #: What of home's is not bound on the GPU.
        self._there: dict[str, Absent] = {}
        self._dirty = True
        #: Home's code ran, or may have, since the companion became the owner.
        self._beside = False
        self._runs_there = False
        #: Cells and callbacks that ran there, or may have, and how many of them home has followed.
        self._ran_there = self._followed = 0
        self._cell = 0
        self._notes: list[Note] = []
        #: Variables whose note about a kept older object was given.
        self._kept: set[str] = set()
        #: What something at home holds, and is newer on the GPU.
        self._at_once: set[str] = set()

    def _send(
        self, needed: Collection[str] | None, progress: Progress | None, *, hand_over: bool
    ) -> Brought:
        reached = self._reached.take()
        try:
            parcel = self.side.pack(needed, hand_over=hand_over, small=self._small, reached=reached)
        except BaseException:
            self._reached.anything()
            raise
        state = self.state.capture() if hand_over else b""
        body, blobs = shipping.encode(parcel, state)
        size = shipping.size(blobs)
        try:
            reply = self.peer.ask("take", body, blobs, progress=progress)
        except BaseException:
            self.side.acknowledge(parcel, surely=False)
            self._dirty = True
            raise
        shipping.forget(parcel, reply.body["untaken"])
        self.side.acknowledge(parcel)
        if state:
            self.state.agreed(state)
        self._there = away_of(reply.body["away"])
        names = tuple(name for each in parcel.components for name in each.names)
        if at_once := self._say_kept(reply.body["kept"], Place.GPU, self._there):
            more = self._send(at_once, progress, hand_over=False)
            return names + more[0], size + more[1]
        return names, size

    def _bring(
        self, needed: Collection[str] | None, progress: Progress | None, *, hand_over: bool
    ) -> Brought:
        ran = self._ran_there
        message = self._ask(needed, progress, hand_over=hand_over)
        names, size = self._take(message), shipping.size(message.blobs)
        if hand_over:
            self._followed = ran
        at_once, self._at_once = self._at_once, set()
        if at_once:
            more = self._bring(at_once, progress, hand_over=False)
            return names + more[0], size + more[1]
        return names, size

    def _ask(
        self, needed: Collection[str] | None, progress: Progress | None, *, hand_over: bool,
        seconds: float | None = None,
    ) -> Message:  # fmt: skip
        body = {
            "needed": None if needed is None else sorted(needed),
            "hand_over": hand_over, "small": self._small, "room": max(0, self.peer.room()),
            "holds": sorted(self.side.held_memory()),
        }  # fmt: skip
        return self.peer.ask("pack", body, seconds=seconds, progress=progress)

    def _take(self, message: Message) -> tuple[str, ...]:
        """Commit what came (main thread)."""
        parcel, state = shipping.decode(message.blobs)
        before, away = dict(self.side.ns), set(self.side.away())
        if untaken := {"n:" + name for name in self._missing.conflicts}:
            shipping.leave_out(parcel, untaken, "it is in conflict")
        if self._beside and parcel.names is not None:
            untaken |= self._missing.part(parcel, self.side.changed())
        self.state.prepare(state)
        try:
            untaken |= shipping.take(self.side, parcel)
        except StageError as error:
            raise GPULeaseError("cannot_move", f"{error}.") from error
        if parcel.names is None:  # names that were deleted or bound here since are home's
            for name in {name for each in parcel.components for name in each.names} - away:
                self._reached.anything()  # what came is not what is here then
                if name in before:
                    self.side.ns[name] = before[name]
                else:
                    self.side.ns.pop(name, None)
        if state:
            self.state.apply(state)
        self._runs_there = bool(message.body["threads"])
        last_error.follow(before, self.side.ns)
        self._missing.committed(before, self._cell)
        del before
        held = self.side.replaced.still_held(self._missing.aside)
        self._at_once |= self._say_kept(held, Place.HOME, self.side.away())
        said = {"number": message.body["number"], "untaken": sorted(untaken)}
        wire = self.peer.wire
        if wire is not None and not wire.broken:
            with suppress(GPULeaseError):  # it is gone: what came is here
                wire.request("ack", said)
        return tuple(name for each in parcel.components for name in each.names)

    def _say_kept(
        self, found: Mapping[str, tuple[str, bool]], place: Place, away: Mapping[str, Absent]
    ) -> set[str]:
        """Note once of a variable that something keeps the object from before.

        Return those whose value is to come at once: that may be what this object gets.
        """
        can_come = {name for name, each in away.items() if each.can_come}
        at_once = {name for name, (_, comes) in found.items() if comes} & can_come
        for name in sorted(found.keys() - at_once - self._kept):
            bound, newer = name in self.side.ns or name in away, name in away.keys() - can_come
            held = commit.note(name, found[name][0], place, bound=bound, newer=newer)
            self._notes.append(held)
        self._kept |= found.keys() - at_once
        return at_once

    def _said(self) -> tuple[Note, ...]:
        """Return what there is to say since the last call."""
        notes, self._notes = tuple(self._notes), []
        return notes

    @refusing
    def commit_pending(self) -> bool:
        """Commit what a drain received (main thread, between cells)."""
        found = bool(self._arrived)
        while self._arrived:
            self._take(self._arrived.pop(0))
        return found


def away_of(said: Mapping[str, Any]) -> dict[str, Absent]:
    """Return what the companion says of names that are not bound there."""
    return {name: Absent(*each) for name, each in said.items()}
