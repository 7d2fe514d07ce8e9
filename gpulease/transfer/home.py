"""The home kernel's half of the transfer: who owns the namespace, and every switch.

Owns the order of things: commit what is staged, find what a cell needs, send or bring it, take
changed names away before a reply, and say what is lost or in conflict.  It never unpickles or
touches a user's object off the main thread.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpulease.errors import GPULeaseError

from . import memory
from .analysis import Use, cell_use
from .api import (
    DrainReport,
    Endpoint,
    KeyPair,
    Note,
    Place,
    Progress,
    SwitchReport,
    TransferSettings,
    VariableStatus,
)
from .conflicts import Custody
from .frames import without_frames
from .groups import name_root
from .kept import kept_notes
from .ledger import Absent
from .plan import Wanted, cannot_move, plan
from .shipment import Incoming, Outcome, Shipment
from .side import Hidden, Side
from .staging import Staging
from .threads import UserThreads
from .wire import Message, Pending, Wire, gone_error
from .writebehind import WriteBehind

log = logging.getLogger(__name__)

#: How often something is asked for again: a thread changed it meanwhile, or a unit was missing.
_TRIES = 3


@dataclass
class Arrival:
    """A reply of the companion that waits for its commit on the main thread."""

    incoming: Incoming
    number: str
    generation: int
    threads: tuple[str, ...] = ()
    done: threading.Event = field(default_factory=threading.Event)


class HomeSide:
    """See ``api.Home``.  ``available`` gives the bytes this process may still take.

    ``on_staged`` (settable) is called on a background thread when ``commit_pending`` has work.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        *,
        hidden: Hidden = (),
        settings: TransferSettings | None = None,
        available: memory.Available = memory.available,
        on_staged: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings or TransferSettings()
        self.side = Side("h", namespace, hidden, self.settings)
        self.custody = Custody(self.side)
        self.side.on_remove = self.custody.put_aside
        self.on_staged = on_staged
        self.owner = Place.HOME
        self._available = available
        self._wire: Wire | None = None
        self._session = ""
        self._dirty = True
        self._use: Use | None = None
        self._cell = 0
        self._staged: collections.deque[Arrival] = collections.deque()
        self._behind: WriteBehind | None = None
        self._threads = UserThreads()
        self._notes: list[Note] = []

    # ---- connection

    def connect(self, endpoint: Endpoint, keys: KeyPair, *, parked: str = "") -> Sequence[Note]:
        """Connect to a companion; ``parked`` names the file an earlier one left."""
        self._close_wire()
        wire = Wire(self._ignore, self._accept)
        wire.connect(endpoint, keys)
        self._wire = wire
        try:
            reply = self._ask("hello", {"known": False}, seconds=30)
            session = str(reply.body["session"])
            if session != self._session:
                self.side.ledger.forget_peer()
                self.side.state.forget_peer()
                self.owner = Place.HOME
            self.side.ledger.forget_peer()
            self._session = session
            notes = self._unpark(parked) if parked else []
        except BaseException:
            self._close_wire()
            raise
        self._behind = WriteBehind(self)
        return notes

    def disconnect(self, *, died: bool, cell: str = "") -> Sequence[Note]:
        """Forget the companion; with ``died`` what had not come home becomes *lost*."""
        self._close_wire()
        self.commit_pending()  # what was received before is home's, whoever sent it is gone
        self.side.ledger.forget_peer()
        self.side.state.forget_peer()
        self._session = ""
        self.owner = Place.HOME
        self._dirty = True
        running, self._use = self._use, None
        if died:
            return self.custody.companion_died(running, cell or str(self._cell + 1))
        return self.custody.companion_left()

    def _close_wire(self) -> None:
        if self._behind is not None:
            self._behind.close()
            self._behind = None
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _unpark(self, path: str) -> list[Note]:
        reply = self._ask("unpark", {"path": path})
        absent = {n: Absent.from_json(a) for n, a in reply.body["absent"].items()}
        return self.custody.unparked(absent)

    @property
    def connected(self) -> bool:
        """True while a companion is reachable."""
        return self._wire is not None and not self._wire.broken

    # ---- cells

    @without_frames
    def before_gpu_cell(self, source: str, *, progress: Progress | None = None) -> SwitchReport:
        """Make the companion the owner; raises ``cannot_move`` for what the cell cannot get."""
        self._need_wire()
        started = time.monotonic()
        self._pause()
        self.commit_pending()
        use = cell_use(source)
        self.custody.check(use, "beside the GPU")
        wanted = self._wanted(use)
        report = SwitchReport()
        if self.owner is Place.HOME or self._dirty or self._threads.alive() or self._misses(use):
            report = self._send(wanted, progress, started)
        self.owner = Place.GPU
        self.custody.handed_over()
        self._dirty = False
        self._use = use
        return report

    @without_frames
    def after_gpu_cell(self, execution_count: int) -> SwitchReport:
        """Bring the small home (at most ``reply_wait``), take away what changed and is not here."""
        started = time.monotonic()
        self._cell = execution_count
        use = self._use or Use(unbounded=True)
        self._notes += self._thread_notes()
        if self._wire is None or self._wire.broken:
            raise gone_error()
        touched = None if use.unbounded else sorted(use.touched)
        pending = self._wire.request("collect", {"touched": touched})
        try:
            message = pending.wait(self.settings.reply_wait)
        except GPULeaseError as error:
            if error.reason not in ("transfer_abandoned", "too_big_for_home"):
                raise
            message = None
        except KeyboardInterrupt:
            self._wire.cancel(pending)
            self.custody.doubt(self._doubtful(use))
            self._wake()
            raise
        moved: tuple[str, ...] = ()
        size = 0
        if message is None:
            self.custody.doubt(self._doubtful(use))
        else:
            moved, size = self._take(message)
        self._wake(pending if message is None else None)
        self._use = None  # until here a death loses what the cell changed
        notes = self._take_notes()
        return SwitchReport(moved, size, time.monotonic() - started, notes)

    @without_frames
    def before_home_cell(self, source: str, *, progress: Progress | None = None) -> SwitchReport:
        """Make home the owner and bring what the cell may read; raises what it cannot get."""
        started = time.monotonic()
        self.commit_pending()
        self.side.supersede()
        if self.custody.lost or self.custody.conflicts:
            self.custody.check(cell_use(source), "at home")
        remote = self.side.ledger.remote
        if not self.connected or (self.owner is Place.HOME and not remote):
            return SwitchReport(notes=self._take_notes())
        self._pause()
        self.commit_pending()
        moved: list[str] = []
        size = 0
        if self.owner is Place.GPU:
            names, size = self._collect_all(progress)
            moved += names
            self.owner = Place.HOME
            self.custody.taken_back()
        if remote:
            names, more = self._bring(cell_use(source), progress)
            moved += names
            size += more
        self._wake()
        notes = self._take_notes()
        return SwitchReport(tuple(moved), size, time.monotonic() - started, notes)

    def after_home_cell(self) -> None:
        """Home code ran (a cell or a callback): everything here is unverified."""
        self._dirty = True
        self.side.supersede()
        self.custody.rebound()

    def commit_pending(self) -> bool:
        """Commit what is staged (main thread, between cells); True if there was something."""
        any_done = False
        while self._staged:
            try:  # it stays in the queue until then: a drain on another thread counts what is here
                self._accept_arrival(self._staged[0])
            finally:
                self._staged.popleft()
            any_done = True
        return any_done

    # ---- what people ask

    def drain(self, seconds: float) -> DrainReport:
        """Bring everything home within ``seconds``; commits happen on the main thread."""
        deadline = time.monotonic() + seconds
        main = threading.current_thread() is threading.main_thread()
        behind = self._behind
        if behind is not None and self.connected:
            behind.wake(everything=True)
            while time.monotonic() < deadline and self.connected:
                if main:
                    self.commit_pending()
                if behind.settled.wait(0.02):
                    break
            if main:
                self.commit_pending()
        done = behind is None or behind.settled.is_set()
        # What is staged is here: a home cell that still runs only puts off its commit.
        waiting = self._uncommitted()
        blockers = tuple(
            VariableStatus(n, a.type_name, Place.GPU, a.size, a.sure, a.blocker)
            for n, a in sorted(waiting.items())
        )
        return DrainReport(done and not blockers, blockers, tuple(self._thread_notes()))

    def _uncommitted(self) -> dict[str, Absent]:
        """Return what is away and not even staged here."""
        away = dict(self.side.ledger.remote)
        for arrival in list(self._staged):
            away |= arrival.incoming.absent
            arrived = {n for g in arrival.incoming.groups for n in _root_names(g.roots)}
            for name in (*arrived, *arrival.incoming.same, *arrival.incoming.deleted):
                away.pop(name, None)
        return away

    @without_frames
    def fetch(self, names: Sequence[str]) -> SwitchReport:
        """Bring these names home; raises ``unknown_name`` or why one cannot come."""
        started = time.monotonic()
        self._pause()
        self.commit_pending()
        for name in names:
            if name not in self.side.ledger.remote and name not in self.side.ns:
                note = self.explain(name)
                sentence = note.sentence if note else f"{name} is not defined anywhere."
                raise GPULeaseError("unknown_name", sentence)
        wanted = [name for name in names if name in self.side.ledger.remote]
        moved, size = self._fetch(wanted, strict=True) if wanted else ((), 0)
        self._wake()
        return SwitchReport(moved, size, time.monotonic() - started)

    @without_frames
    def resolve(self, name: str, keep: str) -> None:
        """End a conflict: ``keep`` is ``home`` or ``gpu``; raises ``no_conflict``."""
        self._pause()
        others = self.custody.resolve(name, keep)
        if keep == "home" and self.connected:
            self._ask("drop", {"names": others})
        self._dirty = True
        if keep == "gpu":
            self._need_wire()
            self._fetch(others, strict=True)

    def recover(self, names: Sequence[str]) -> None:
        """Accept the older value of lost names; raises ``not_lost`` or ``nothing_older``."""
        self.custody.recover(names)
        self._dirty = True

    def status(self) -> Sequence[VariableStatus]:
        """Return every user variable and where it lives."""
        return self.custody.status(unverified=self.owner is Place.GPU)

    def explain(self, name: str) -> Note | None:
        """Say why ``name`` is absent, or None when gpulease knows nothing of it."""
        return self.custody.explain(name)

    def away_names(self) -> Sequence[str]:
        """Return the names whose value is only away."""
        return sorted(self.side.ledger.remote)

    @without_frames
    def result(self, execution_count: int) -> Any:
        """Fetch the value of a GPU cell's result; raises ``no_result`` where there is none."""
        reply = self._ask("result", {"cell": execution_count})
        if not reply.body["known"]:
            raise GPULeaseError("no_result", f"Cell [{execution_count}] left no result to fetch.")
        name = str(reply.body["name"])
        if name:
            if name not in self.side.ns:
                self.fetch([name])
            return self.side.ns[name]
        staging = Incoming.decode(reply.body, reply.blobs)
        outcome = self.side.receive(staging)
        self._acknowledge(str(reply.body["shipment"]), outcome, 0)
        pseudo = f"Out[{execution_count}]"
        if pseudo not in self.side.ns:
            reason = next(iter(outcome.failed.values()), "it does not load at home")
            raise cannot_move(pseudo, reason)
        value = self.side.ns.pop(pseudo)
        self.side.ledger.differ([name_root(pseudo)])
        return value

    # ---- sending

    def _wanted(self, use: Use) -> Wanted:
        here = frozenset(self.side.names())
        always = here & _builtin_names()
        return Wanted(use.strict & here, use.reads | always, use.unbounded)

    def _misses(self, use: Use) -> bool:
        """Say whether the cell may need something that only home has (sticky cells)."""
        base = self.side.ledger.base
        only = {name for name in self.side.names() if name_root(name) not in base}
        if not only:
            return False
        if use.unbounded:
            return True
        near = set(use.reads | (only & _builtin_names()))
        here = set(self.side.names())
        while near & (here | self.side.ledger.remote.keys()):
            survey = self.side.survey(near & here)
            if any(group.unbounded for group in survey.groups):
                return True
            roots = self.side.closure(near, survey, reads=True)
            more = {root[2:] for root in roots if root.startswith("n:")} - near
            if not more & here:
                break
            near |= more
        return bool(near & only)

    def _send(self, wanted: Wanted, progress: Progress | None, started: float) -> SwitchReport:
        outcome = Outcome(True)
        for _ in range(4):
            shipment = plan(self.side, wanted)
            outcome = self._offer(shipment, progress)
            if outcome.ok:
                break
            if not outcome.lacks:
                self._refuse_load(shipment, outcome)
        if not outcome.ok:
            raise _not_taken()
        notes = [
            Note("cannot_move", f"{name} stays at home: {why}", (name,))
            for index, why in outcome.failed.items()
            for name in _names(shipment, index)
        ]
        took = time.monotonic() - started
        return SwitchReport(shipment.names, shipment.nbytes, took, (*notes, *self._thread_notes()))

    def _offer(self, shipment: Shipment, progress: Progress | None) -> Outcome:
        wire = self._need_wire()
        header, blobs = shipment.encode()
        pending = wire.request("commit", header, blobs, _bytes_progress(progress, shipment))
        try:
            reply = pending.wait()
        except KeyboardInterrupt:
            wire.abort(pending)
            self._settle(pending, shipment)
            raise
        assert reply is not None
        outcome = Outcome.from_json(reply.body)
        self.side.acknowledge(shipment, outcome)
        return outcome

    def _settle(self, pending: Pending, shipment: Shipment) -> None:
        """After an interrupt: learn whether the other side committed; assume nothing if silent."""
        try:
            reply = pending.wait(5)
        except GPULeaseError:
            return  # it did not
        if reply is None:
            self.side.ledger.forget_peer()
            return
        self.side.acknowledge(shipment, Outcome.from_json(reply.body))
        self._dirty = True

    def _refuse_load(self, shipment: Shipment, outcome: Outcome) -> None:
        for index, why in outcome.failed.items():
            names = _names(shipment, index)
            if shipment.items[index].required:
                raise cannot_move(", ".join(names) or "a function or class of the cell", why)

    # ---- bringing

    def _collect_all(self, progress: Progress | None) -> tuple[tuple[str, ...], int]:
        for attempt in range(_TRIES):
            message = self._ask_for_all(progress)
            if message.body.get("current"):
                return (), 0
            arrival = self._arrival(message)
            if arrival.threads and not self._confirmed(arrival) and attempt < _TRIES - 1:
                continue  # a thread of the companion keeps changing it: read it again
            moved, ok = self._accept_arrival(arrival)
            if ok:
                return moved, arrival.incoming.nbytes
        raise _not_taken()

    def _ask_for_all(self, progress: Progress | None) -> Message:
        """Ask for what changed; where even the small does not fit in memory, for its names."""
        try:
            return self._ask("collect", {"touched": None}, progress=progress)
        except GPULeaseError as error:
            if error.reason != "too_big_for_home":
                raise
            return self._ask("collect", {"touched": None, "eager": False}, progress=progress)

    def _bring(self, use: Use, progress: Progress | None) -> tuple[tuple[str, ...], int]:
        """Fetch what a home cell may read, to a fixed point over functions' globals."""
        moved: list[str] = []
        size = 0
        tried: set[str] = set()
        while True:
            remote = self.side.ledger.remote
            strict = (use.strict & remote.keys()) - tried
            soft = self._near(use) - strict - tried
            if not strict and not soft:
                return tuple(moved), size
            for names, must in ((strict, True), (soft, False)):
                if names:
                    got, more = self._fetch(sorted(names), strict=must, progress=progress)
                    moved += got
                    size += more
            tried |= strict | soft

    def _near(self, use: Use) -> set[str]:
        remote = self.side.ledger.remote
        if use.unbounded:
            return set(remote)
        near = use.reads | (remote.keys() & _builtin_names())
        survey = self.side.survey(name for name in near if name in self.side.ns)
        roots = self.side.closure(near, survey, reads=True)
        if any(group.unbounded for group in survey.groups):
            return set(remote)
        return {root[2:] for root in roots if root.startswith("n:")} & remote.keys()

    def _fetch(
        self, names: Sequence[str], *, strict: bool, progress: Progress | None = None
    ) -> tuple[tuple[str, ...], int]:
        for name in names:
            self.custody.check_name(name, "at home") if strict else None
        body = {"names": list(names), "strict": strict}
        for _ in range(_TRIES):
            arrival = self._arrival(self._ask("fetch", body, progress=progress))
            moved, ok = self._accept_arrival(arrival)
            if ok:
                break
        left = [n for n in names if n in self.side.ledger.remote]
        if strict and left:
            blocker = self.side.ledger.remote[left[0]].blocker or "it does not load at home"
            raise cannot_move(left[0], blocker)
        return moved, arrival.incoming.nbytes

    def _take(self, message: Message) -> tuple[tuple[str, ...], int]:
        if message.body.get("current"):
            return (), 0
        arrival = self._arrival(message)
        if arrival.threads and not self._confirmed(arrival):
            self.custody.doubt([n for g in arrival.incoming.groups for n in _root_names(g.roots)])
            return (), 0
        moved, ok = self._accept_arrival(arrival)
        if not ok:
            self.custody.doubt([n for g in arrival.incoming.groups for n in _root_names(g.roots)])
        return moved, arrival.incoming.nbytes

    def _arrival(self, message: Message) -> Arrival:
        body = message.body
        incoming = Incoming.decode(body, message.blobs)
        return Arrival(incoming, body["shipment"], body["generation"], tuple(body["threads"]))

    def _confirmed(self, arrival: Arrival) -> bool:
        return bool(self._ask("confirm", {"shipment": arrival.number}).body["same"])

    def _accept_arrival(self, arrival: Arrival) -> tuple[tuple[str, ...], bool]:
        """Commit on the main thread, then tell the companion; return names and if it was taken."""
        custody = self.custody

        def conflicts(staging: Staging) -> set[int]:
            return custody.find_conflicts(staging)

        before = set(custody.conflicts)
        olds = self._held_now(arrival.incoming)
        try:
            outcome = self.side.receive(
                arrival.incoming,
                may_bind=custody.may_bind,
                may_remove=custody.may_bind,
                before_commit=conflicts,
            )
            custody.committed(arrival.incoming, outcome)
        finally:
            arrival.done.set()
        self._notes += custody.notes_for(set(custody.conflicts) - before)
        if outcome.ok:
            for name in set(custody.conflicts) & olds.keys():
                del olds[name]
            self._notes += kept_notes(olds, self.side.ns)
        self._acknowledge(arrival.number, outcome, arrival.generation)
        if not outcome.ok:
            self._remember_refusals(arrival.incoming, outcome)
            return (), not outcome.lacks
        names = tuple(
            name
            for index, group in enumerate(arrival.incoming.groups)
            if index not in outcome.failed and index not in outcome.deferred
            for name in _root_names(group.roots)
        )
        return names, True

    def _held_now(self, incoming: Incoming) -> dict[str, Any]:
        """Return home's present values of the names that arrive."""
        names = {n for group in incoming.groups for n in _root_names(group.roots)}
        held = {n: self.side.ns[n] for n in names if n in self.side.ns}
        return held | {n: v for n, v in self.custody.aside.items() if n in names - held.keys()}

    def _remember_refusals(self, incoming: Incoming, outcome: Outcome) -> None:
        for index, reason in outcome.failed.items():
            for name in _root_names(incoming.groups[index].roots):
                absent = self.side.ledger.remote.get(name)
                if absent is not None and not outcome.lacks:
                    self.side.ledger.remote[name] = replace(absent, blocker=reason)

    def _acknowledge(self, number: str, outcome: Outcome, generation: int) -> None:
        if self._wire is not None and not self._wire.broken:
            body = {"shipment": number, "outcome": outcome.to_json(), "generation": generation}
            self._wire.request("ack", body)

    # ---- for write-behind (its thread)

    @property
    def wire(self) -> Wire | None:
        """The connection, or None."""
        return self._wire

    def stage(self, message: Message) -> Arrival:
        """Queue a reply for the main thread's next ``commit_pending``."""
        arrival = self._arrival(message)
        self._staged.append(arrival)
        self.on_staged()
        return arrival

    def release_waiting(self) -> None:
        """Let write-behind go on although its arrivals are not committed yet."""
        for arrival in list(self._staged):
            arrival.done.set()

    def away_names_to_bring(self) -> list[str]:
        """Return away names that could come, the smallest first."""
        remote = self._uncommitted()
        able = [name for name, absent in remote.items() if not absent.blocker]
        return sorted(able, key=lambda n: (remote[n].size or 0, n))

    def note_blocker(self, name: str, error: GPULeaseError) -> None:
        """Remember why a name cannot come."""
        for table in (self.side.ledger.remote, *(a.incoming.absent for a in list(self._staged))):
            if name in table:
                table[name] = replace(table[name], blocker=error.sentence)

    # ---- small helpers

    def _doubtful(self, use: Use) -> list[str]:
        """Return home's names that a GPU cell may have changed and that did not come yet."""
        base = self.side.ledger.base
        survey = self.side.survey()
        held = {name for name in self.side.names() if name_root(name) in base}
        if use.unbounded or any(group.unbounded for group in survey.groups):
            return sorted(held)
        roots = self.side.closure(use.touched & held, survey, reads=True)
        bad = set(roots)
        for root in roots:
            if root in base:
                bad |= base[root].roots
        grown = True
        while grown:  # whatever needs something doubtful is doubtful
            grown = False
            for group in survey.groups:
                if not bad.issuperset(group.roots) and (
                    bad & group.key or any("u:" + oid in bad for oid in group.needs)
                ):
                    bad |= group.key
                    grown = True
        return sorted({root[2:] for root in bad if root.startswith("n:")} & held)

    def _take_notes(self) -> tuple[Note, ...]:
        """Return each thing to say once; commits between cells wait here for the next one."""
        notes, self._notes = tuple(dict.fromkeys(self._notes)), []
        return notes

    def _thread_notes(self) -> list[Note]:
        alive = self._threads.alive()
        if not alive:
            return []
        sentence = f"Still running at home: {', '.join(sorted(alive))}."
        return [Note("thread_alive", sentence, tuple(sorted(alive)))]

    def _ask(
        self,
        kind: str,
        body: dict[str, Any],
        *,
        seconds: float | None = None,
        progress: Progress | None = None,
    ) -> Message:
        wire = self._need_wire()
        show = (lambda done, total: progress("", done, total)) if progress is not None else None
        pending = wire.request(kind, body, None, show)
        try:
            reply = pending.wait(seconds)
        except KeyboardInterrupt:
            wire.cancel(pending)
            raise
        if reply is None:
            wire.cancel(pending)
            raise gone_error()
        return reply

    def _need_wire(self) -> Wire:
        if self._wire is None or self._wire.broken:
            raise gone_error()
        return self._wire

    def _pause(self) -> None:
        if self._behind is not None:
            self._behind.pause()

    def _wake(self, late: Pending | None = None) -> None:
        if self._behind is not None:
            self._behind.wake(late)

    def _ignore(self, message: Message) -> None:
        if message.kind != "cancel":
            log.warning("transfer: the companion asked for %s; dropped", message.kind)

    def _accept(self, total: int) -> GPULeaseError | None:
        """Refuse what does not fit in memory: the value, one staging copy and a margin."""
        free = self._available()
        if 2 * total + self.settings.memory_margin <= free:
            return None
        return GPULeaseError(
            "too_big_for_home",
            f"{total:,} bytes do not fit into the home kernel's memory ({free:,} bytes are free).",
            next_step="Delete something at home, or reduce the value beside the GPU first.",
            numbers={"bytes": total, "free": free},
        )


def _not_taken() -> GPULeaseError:
    return GPULeaseError(
        "transfer_failed",
        "The variables beside the GPU could not be taken over at home.",
        next_step="Run the cell again; if it stays so, %gpu return ends the lease.",
    )


def _builtin_names() -> frozenset[str]:
    import builtins

    return frozenset(dir(builtins))


def _names(shipment: Shipment, index: int) -> list[str]:
    return _root_names(shipment.items[index].packed.roots)


def _root_names(roots: Sequence[str]) -> list[str]:
    return [root[2:] for root in roots if root.startswith("n:")]


def _bytes_progress(
    progress: Progress | None, shipment: Shipment
) -> Callable[[int, int], None] | None:
    if progress is None or not shipment.items:
        return None
    total = shipment.nbytes
    first = shipment.names[0] if shipment.names else ""
    progress(first, 0, total)
    return lambda done, all_of_it: progress(first, done, all_of_it)
