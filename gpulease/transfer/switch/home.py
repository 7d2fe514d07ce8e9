"""The home kernel's half of the transfer: who owns the namespace, and every switch.

Owns the order of things: commit what is staged, find what a cell needs, send or bring it, take
changed names away before a reply, and say what is lost or in conflict.  It never unpickles or
touches a user's object off the main thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.errors import GPULeaseError
from gpulease.sides import memory
from gpulease.sides.names.analysis import Use
from gpulease.sides.state.process_state import ProcessState
from gpulease.sides.threads import UserThreads
from gpulease.transfer.values.given_up import quietly
from gpulease.transfer.values.groups import names_of
from gpulease.transfer.values.packing.ledger import Absent
from gpulease.transfer.values.side import Hidden, Side
from gpulease.transfer_next.api import (
    DrainReport,
    Note,
    Place,
    Progress,
    SwitchReport,
    TransferSettings,
    VariableStatus,
)
from gpulease.transfer_next.bare import without_frames
from gpulease.transfer_next.imports import ImportsAhead
from gpulease.transfer_next.messages import away_note, thread_notes
from gpulease.transfer_next.origins import Origins
from gpulease.transfer_next.peer import Peer
from gpulease.transfer_next.stayed import Stayed, let_go
from gpulease.wire.message import Message, Pending

from .arrivals import Arrivals
from .bringing import Bringing
from .concurrent import ConcurrentThreads, tasks_alive
from .expected import NOTHING_NEW
from .large import Large
from .module_notes import ModuleNotes
from .own_parts import OwnParts
from .requests import Requests
from .sending import Sending
from .touched import doubtful
from .unavailable import Unavailable, status_rows
from .writebehind import WriteBehind


class HomeSide:
    """See ``api.Home``.  ``available`` gives the bytes this process may still take.

    ``state`` has watched this process from the notebook's first cell on, where that was earlier.
    ``on_staged`` is called on a background thread when ``commit_pending`` has work.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        *,
        hidden: Hidden = (),
        settings: TransferSettings | None = None,
        state: ProcessState | None = None,
        available: memory.Available = memory.available,
        on_staged: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings or TransferSettings()
        self.side = Side("h", namespace, hidden, self.settings, state)
        self._threads = UserThreads(namespace)
        self.unavailable = Unavailable(self.side, ConcurrentThreads(namespace))
        self.side.on_remove, self.side.aside = self.unavailable.put_aside, self.unavailable.aside
        self.side.runs_beside = lambda: bool(self._threads.running()) or tasks_alive(namespace)
        self.owner = Place.HOME
        self.peer = Peer(self.settings.memory_margin, available)
        self._large = Large(self.peer.room)
        self._imports = ImportsAhead(self.peer)
        self.arrivals = Arrivals(
            self.side, self.unavailable, self.peer, on_staged, self._large.marked
        )
        self._sending = Sending(self.side, self.peer)
        self._bringing = Bringing(self.side, self.unavailable, self.peer, self.arrivals)
        self._requests = Requests(
            self.side, self.unavailable, self.peer, self.arrivals, self._bringing
        )
        self._session = ""
        self._dirty = True
        self._use: Use | None = None
        self._source = ""
        self._last_use = Use()
        self._origins = Origins(namespace)
        self._module_notes = ModuleNotes(self.side)
        self._own_parts = OwnParts(self.side)
        self._expected: Pending | None = None
        self._cell = 0
        self._behind: WriteBehind | None = None

    # ---- connection

    @quietly()
    def connect(self, endpoint: Endpoint, keys: KeyPair, *, parked: str = "") -> Sequence[Note]:
        """Connect to a companion; ``parked`` names the file an earlier one left."""
        self._close_wire()
        self.peer.open(endpoint, keys)
        try:
            reply = self.peer.ask("hello", {"known": False}, seconds=30)
            session = str(reply.body["session"])
            self._large.park_limit = int(reply.body["park_limit"])
            if session != self._session:
                self.side.state.forget_peer()
                self._module_notes.new_companion()
                self.owner = Place.HOME
            self.side.ledger.forget_peer()
            self._session = session
            notes = self._unpark(parked) if parked else self.unavailable.unparked({}, {})
        except BaseException:
            self._close_wire()
            raise
        self._behind = WriteBehind(self.peer, self.arrivals)
        self._imports.connected()
        return notes

    @quietly()
    def disconnect(
        self, *, died: bool, cell: str = "", lost: Collection[str] = ()
    ) -> Sequence[Note]:
        """Forget the companion; with ``died`` what had not come home becomes *lost*."""
        self._close_wire()
        self.commit_pending()  # what was received before is home's, whoever sent it is gone
        self.side.ledger.forget_peer()
        self.side.state.forget_peer()
        let_go(self.side.registry.of_type(Stayed))
        self._session = ""
        self.owner = Place.HOME
        self._dirty = True
        running, self._use = self._use, None
        if died:
            return self.unavailable.companion_died(running, cell or str(self._cell + 1))
        return self.unavailable.companion_left(lost)

    def _close_wire(self) -> None:
        if self._behind is not None:
            self._behind.close()
            self._behind = None
        self._expected = None  # its number means nothing on another wire
        self._bringing.structures.put_away()
        self._sending.forget()
        self.peer.close()

    def _unpark(self, path: str) -> list[Note]:
        reply = self.peer.ask("unpark", {"path": path})
        absent = {n: Absent.from_json(a) for n, a in reply.body["absent"].items()}
        return self.unavailable.unparked(absent, reply.body["failed"])

    @property
    def connected(self) -> bool:
        """True while a companion is reachable."""
        return self.peer.connected

    # ---- cells

    @quietly()
    @without_frames
    def before_gpu_cell(self, source: str, *, progress: Progress | None = None) -> SwitchReport:
        """Make the companion the owner; raises ``cannot_move`` for what the cell cannot get."""
        self.peer.need()
        started = time.monotonic()
        self._bringing.structures.check()
        self.rest()
        if self.unavailable.unsure():
            self._bringing.all_changed(progress)
        use = self._own_parts.use_of(source)
        self.unavailable.let_delete(use.deletes - self.side.ledger.remote.keys())
        self.unavailable.check(use)
        sending = self._sending
        report = SwitchReport()
        running = self._threads.running()
        anew = self.owner is Place.HOME or self._dirty
        if anew or running or sending.misses(use):
            try:
                report = sending.send(sending.wanted(use), progress, started)
            except KeyboardInterrupt:
                self._dirty = True
                raise
            report = replace(report, notes=(*report.notes, *thread_notes(running)))
        self.owner = Place.GPU
        self.unavailable.handed_over(use, running)
        self._dirty = False
        self._use = self._last_use = use
        self._source = source
        self.arrivals.cell_begins(use)
        return report

    def expect_gpu_cell(self) -> dict[str, Any]:
        """Return what is to travel with the coming cell, so that its end needs no question."""
        use = self._use or Use(unbounded=True)
        self._expected = self.peer.need().expect()
        after = self.arrivals.acknowledged
        return {"number": self._expected.number, "after": after, **_touched(use, self.peer.room())}

    @quietly()
    @without_frames
    def after_gpu_cell(self, execution_count: int, nothing_new: int | None = None) -> SwitchReport:
        """Bring the small home (at most ``reply_wait``), take away what changed and is not here.

        ``nothing_new`` is what the reply said: the question that its cell answered.
        """
        started = time.monotonic()
        if nothing_new is not None:
            self.peer.need().answered(nothing_new, NOTHING_NEW)
        self._cell = self.arrivals.cell = execution_count
        use = self._use or Use(unbounded=True)
        running = self._threads.running()
        self.arrivals.note(thread_notes(running))
        self.unavailable.conflicts.cell_ended(running)
        message, late = self._collect_small(use)
        moved: tuple[str, ...] = ()
        size = 0
        if message is not None:
            moved, size = self._bringing.take(message)
        self.arrivals.note(self.unavailable.settle_conflicts())
        self.arrivals.note(self._large.notes_of(self.side.ledger.remote))
        if message is None:
            self.unavailable.doubt(doubtful(self.side, use))
        self._wake(late)
        self._use = None  # until here a death loses what the cell changed
        # Now it is known whether the cell did the same itself.
        told = self._module_notes.to(self._source, Place.GPU)
        notes = (*self.arrivals.take_notes(), *told)
        return SwitchReport(moved, size, time.monotonic() - started, notes)

    def _collect_small(self, use: Use) -> tuple[Message | None, Pending | None]:
        """Return the reply, or None and who still waits for it."""
        wire = self.peer.need()
        pending, self._expected = self._expected, None
        if pending is None:
            pending = wire.request("collect", _touched(use, self.peer.room()))
        elif not pending.done.is_set():
            wire.request("due", {"number": pending.number, **_touched(use, self.peer.room())})
        try:
            message = pending.wait(self.settings.reply_wait)
        except GPULeaseError as error:
            if error.reason not in ("transfer_abandoned", "too_big_for_home"):
                raise
            message = None
        except KeyboardInterrupt:
            wire.cancel(pending)
            self.unavailable.doubt(doubtful(self.side, use))
            self._wake()
            raise
        return message, (pending if message is None else None)

    @quietly()
    @without_frames
    def before_home_cell(self, source: str, *, progress: Progress | None = None) -> SwitchReport:
        """Make home the owner and bring what the cell may read; raises what it cannot get."""
        report = self._bring_for(source, progress)
        self._origins.cell_begins()
        self.side.state.cell_begins(source, self.side.ns)
        self.unavailable.conflicts.mark_dirty()  # user code runs from here on
        told = self._module_notes.to(source, Place.HOME)
        return replace(report, notes=(*report.notes, *told))

    def _bring_for(self, source: str, progress: Progress | None) -> SwitchReport:
        started = time.monotonic()
        self._bringing.structures.check()
        self.commit_pending()
        self.side.supersede()
        remote = self.side.ledger.remote
        missed = bool(self.unavailable.lost or self.unavailable.conflicts.open)
        here = not self.connected or (self.owner is Place.HOME and not remote)
        use = Use() if here and not missed else self._own_parts.use_of(source)
        if missed:
            self.unavailable.let_delete(use.deletes - remote.keys())
            self.unavailable.check(use)
        if here:
            return SwitchReport(notes=self.arrivals.take_notes())
        self.rest()
        moved: tuple[str, ...] = ()
        size = 0
        near = use.but(use.deletes)
        if self.owner is Place.GPU:
            moved, size = self._bringing.all_changed(progress, near)
            self.owner = Place.HOME
            self.unavailable.taken_back()
        if remote:
            self.unavailable.let_delete(use.deletes)
            names, more = self._bringing.for_cell(near, progress)
            moved += names
            size += more
        self._wake()
        notes = self.arrivals.take_notes()
        return SwitchReport(moved, size, time.monotonic() - started, notes)

    @quietly()
    def after_home_cell(self, execution_count: int = 0) -> None:
        """Home code ran (a cell or a callback): everything here is unverified."""
        self._bringing.structures.put_away()
        self._origins.cell_ended(execution_count)
        self.side.state.cell_ended()
        self._dirty = True
        self.side.supersede()
        self.unavailable.rebound()
        self._imports.tell()

    def ran_beside(self) -> None:
        """Code of home ran beside the cells (any thread): it may have changed what is here."""
        self._dirty = True
        self.unavailable.conflicts.wrote_beside()

    def ran_there(self) -> None:
        """Home asks before each of its cells what changed there."""

    def commit_pending(self) -> bool:
        """Commit what is staged (main thread, between cells); True if there was something."""
        return self.arrivals.commit_staged()

    # ---- what people ask

    def drain(self, seconds: float) -> DrainReport:
        """Bring everything home within ``seconds``; commits happen on the main thread."""
        report = self._requests.drain(self._behind, seconds)
        return replace(report, notes=tuple(thread_notes(self._threads.running())))

    @quietly()
    @without_frames
    def fetch(self, names: Sequence[str]) -> SwitchReport:
        """Bring these names home; raises ``unknown_name`` or why one cannot come."""
        self.rest()
        report = self._requests.fetch(names)
        self._wake()
        return report

    @quietly()
    @without_frames
    def resolve(self, name: str, keep: str) -> None:
        """End a conflict: ``keep`` is ``home`` or ``gpu``; raises ``no_conflict``."""
        self.rest()
        self._dirty = True
        self._requests.resolve(name, keep)

    @quietly()
    def recover(self, names: Sequence[str] = ()) -> tuple[Sequence[str], Sequence[Note]]:
        """Accept the older values of lost names, of all where none is named.

        Returns those that there were, and why there is none of the others.
        """
        self._dirty = True
        return self.unavailable.recover(names)

    def status(self) -> Sequence[VariableStatus]:
        """Return every user variable and where it lives."""
        rows = status_rows(self.unavailable, unverified=self.owner is Place.GPU)
        away = {name: self._large.marked(a) for name, a in self.side.ledger.remote.items()}
        whole = self.arrivals.whole
        old = {name: whole.get(name) for name in away if name in self.unavailable.aside}
        return [
            replace(row, blocker=away[row.name].blocker, older=old.get(row.name))
            if row.name in away else row for row in rows
        ]  # fmt: skip

    def slow_because(self) -> str:
        """Say why there is no second wire where one is wanted."""
        return "" if self.peer.wire is None else self.peer.wire.slow_because

    def explain(self, name: str) -> Note | None:
        """Say why ``name`` is absent, or None when gpulease knows nothing of it."""
        absent = self.side.ledger.remote.get(name)
        if absent is not None and (marked := self._large.marked(absent)) is not absent:
            return away_note(name, marked.type_name, marked.size, marked.blocker)
        return self.unavailable.explain(name)

    def explain_error(self, error: str) -> str:
        """Say which values the last GPU cell used from a device that is not the GPU, or ''."""
        side = self.side
        near = self._last_use.touched & side.ns.keys()
        roots = side.closure(near, side.survey(near), reads=True)
        return self._origins.explain(error, names_of(roots))

    def explain_stayed(self, name: str) -> Note | None:
        """Say why a name of home is not on the GPU's side, or None where it is there."""
        return self.unavailable.explain_stayed(name)

    def share_variables(self, names: Collection[str]) -> None:
        """Let these environment variables travel although they hold secrets."""
        self.side.state.share(names)
        self._dirty = True

    def away_names(self) -> Sequence[str]:
        """Return the names whose value is only away."""
        return sorted(self.side.ledger.remote)

    def away_modules(self) -> Mapping[str, str]:
        """Return the names of modules that only GPU cells have imported, with the modules'."""
        return {n: each.module for n, each in self.side.ledger.remote.items() if each.module}

    @quietly()
    @without_frames
    def result(self, execution_count: int) -> Any:
        """Fetch the value of a GPU cell's result; raises ``no_result`` where there is none."""
        return self._bringing.result(execution_count, self.fetch)

    # ---- write-behind and threads

    def rest(self) -> None:
        """Stop write-behind and commit what it staged; nothing is expected any more."""
        expected, self._expected = self._expected, None
        if expected is not None and not expected.done.is_set() and self.peer.wire is not None:
            self.peer.wire.cancel(expected)
        if self._behind is not None:
            self._behind.pause()
        self._sending.settle()
        self.commit_pending()

    def _wake(self, late: Pending | None = None) -> None:
        if self._behind is not None:
            self._behind.wake(late)


def _touched(use: Use, room: int) -> dict[str, Any]:
    """Return which names are to be looked at after a cell (None: all), and home's room in bytes."""
    return {"touched": None if use.unbounded else sorted(use.touched), "room": room}
