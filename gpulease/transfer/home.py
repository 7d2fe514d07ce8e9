"""The home kernel's half: which values a cell needs, and which side has the newest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.errors import GPULeaseError
from gpulease.sides import memory
from gpulease.sides.names.analysis import SUBCLASSES, Use, cell_use
from gpulease.sides.state.process_state import ProcessState
from gpulease.sides.threads import UserThreads

from . import shipping
from .api import (
    LAST_ERROR,
    Absent,
    DrainReport,
    Note,
    Place,
    Progress,
    SwitchReport,
    TransferSettings,
    VariableStatus,
)
from .exchange import Brought, Exchange, away_of, refusing
from .imports import ImportsAhead
from .leaves import leaf_kind
from .messages import cannot_move, stayed_note, thread_notes
from .missing import conflict_note
from .origins import Origins
from .peer import Peer
from .reached import Reached
from .roots import Hidden, is_variable
from .structure import ShowingSide


class HomeSide(Exchange):
    """The home kernel's half.

    Called on the main thread unless a method says otherwise; every wait there ends on
    ``KeyboardInterrupt``, leaving both sides as before the call.  Refusals are ``GPULeaseError``
    with the variable's name, reason and way out.
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
        self._results: dict[int, Any] = {}
        side = ShowingSide("h", namespace, hidden, self._results)
        peer = Peer(self.settings.memory_margin, available)
        self._threads = UserThreads(namespace)
        reached = Reached(lambda: bool(self._threads.running()))
        state = state or ProcessState()
        super().__init__(side, state, peer, self.settings.small_bytes, reached)
        self.owner = Place.HOME
        self._imports = ImportsAhead(self.peer)
        self._origins = Origins(namespace)
        self._on_staged = on_staged
        self._use: Use | None = None
        self._last_use = Use()
        self._session = ""

    # ---- connection

    def connect(self, endpoint: Endpoint, keys: KeyPair, *, parked: str = "") -> Sequence[Note]:
        """Connect to a companion (new, or the same again); ``parked``: what an earlier one left."""
        self.peer.close()
        self.peer.open(endpoint, keys)
        try:
            said = self.peer.ask("hello", {"known": False}, seconds=30).body
            session, self._large.park_limit = str(said["session"]), int(said["park_limit"])
            known = dict(self.side.away()) if session == self._session else {}
            failed: dict[str, str] = {}
            if parked:
                said = self.peer.ask("unpark", {"path": parked}).body
                known |= self._missing.parked(away_of(said["away"]))
                failed = said["failed"]
            self.side.forget_peer(known)
            self.state.forget_peer()
            if session != self._session:
                self.owner = Place.HOME
            self._session, self._dirty = session, True
            notes = self._missing.unparked(failed)
        except BaseException:
            self.peer.close()
            raise
        self._imports.connected()
        return notes

    def disconnect(
        self, *, died: bool, cell: str = "", lost: Collection[str] = ()
    ) -> Sequence[Note]:
        """Forget the companion; what is newer there is *lost* if it ``died``, else it was parked.

        Of what was parked the names ``lost`` are lost.
        """
        self._structures.put_away()
        self.peer.close()
        self.commit_pending()  # what was received before is home's
        gone = {n: each for n, each in self.side.away().items() if is_variable(n)}
        self.side.forget_peer()
        self.state.forget_peer()
        gone = {name: each for name, each in gone.items() if name not in self.side.away()}
        gone |= self._missing.unbind_stayed()
        self._session, self.owner, self._dirty = "", Place.HOME, True
        running, self._use = self._use, None
        if died:
            return self._missing.died(gone, running, cell or str(self._cell + 1))
        return self._missing.left(gone, lost)

    @property
    def connected(self) -> bool:
        """Whether a companion is reachable."""
        return self.peer.connected

    # ---- a GPU cell

    @refusing
    def before_gpu_cell(self, source: str, *, progress: Progress | None = None) -> SwitchReport:
        """Make the companion the owner; raises ``cannot_move`` for what the cell cannot get."""
        self.peer.need()
        started = time.monotonic()
        with self._exchange:
            self._structures.check()
            self.commit_pending()
            use = cell_use(source)
            self._missing.let_delete(use.deletes - self.side.away().keys())
            self._missing.check(use.strict)
            running = self._threads.running()
            moved, size = tuple[str, ...](), 0
            if self.owner is Place.HOME or self._dirty or running or self._is_new(use):
                self._follow(progress)
                moved, size = self._send(_needed(use), progress, hand_over=True)
            names, more = self._send_lacking(use, progress)
            self.owner, self._dirty, self._beside = Place.GPU, False, bool(running)
            self._refuse_stayed(use)
        self._ran_there += 1  # until its changes are here, however the cell ends
        self._use = self._last_use = use
        notes = (*thread_notes(running), *self._said())
        return SwitchReport(moved + names, size + more, time.monotonic() - started, notes)

    def _is_new(self, use: Use) -> bool:
        """Say whether the cell reads a name that was bound here without a home cell."""
        known = {root[2:] for roots in self.side.agreed for root in roots} | self._there.keys()
        return not use.touched.isdisjoint(set(self.side.names()) - known)

    def _send_lacking(self, use: Use, progress: Progress | None) -> Brought:
        """Send what the cell's functions lead to, of what was not needed until now."""
        moved, size = tuple[str, ...](), 0
        touched, tried = _touched(use), set[str]()
        while touched and any(
            each.can_come for name, each in self._there.items() if name not in tried
        ):
            said = self.peer.ask("lacking", {"names": sorted(touched)}).body["names"]
            coming = {name for name in said if self._there[name].can_come} - tried
            if not coming:
                break
            tried |= coming
            names, more = self._send(coming, progress, hand_over=False)
            moved, size = moved + names, size + more
        return moved, size

    def _refuse_stayed(self, use: Use) -> None:
        """Raise for what a cell names and only home has.

        The placeholder there raises only when it is used, and many functions do not use it.
        """
        for name in sorted(use.strict - use.deletes):
            away, here = self._there.get(name), self.side.ns.get(name)
            why = away.reason if away is not None else leaf_kind(here)
            if why is not None:
                raise cannot_move(name, why, Place.HOME)

    @refusing
    def after_gpu_cell(self, execution_count: int) -> SwitchReport:
        """Bring what is small, and unbind what changed and is not here."""
        started = time.monotonic()
        self._cell = execution_count
        running = self._threads.running()
        self._beside = self._beside or bool(running)
        before = set(self._missing.conflicts)
        with self._exchange:
            self.peer.need()
            moved, size = self._follow(None)
        self._use = None  # until here a death loses what the cell changed
        conflicts = sorted(self._missing.conflicts.keys() - before)
        notes = (
            *thread_notes(running), *map(conflict_note, conflicts), *self._said(),
            *self._large.notes(self.side.away(), self._missing.stayed()),
        )  # fmt: skip
        return SwitchReport(moved, size, time.monotonic() - started, notes)

    # ---- a home cell

    @refusing
    def before_home_cell(self, source: str, *, progress: Progress | None = None) -> SwitchReport:
        """Make home the owner and bring what the cell may read; raises what it cannot get."""
        started = time.monotonic()
        with self._exchange:
            self._structures.check()
            self.commit_pending()
            use = cell_use(source)
            missing = self._missing
            if missing.lost or missing.conflicts or self.side.away():
                missing.let_delete(use.deletes)
                missing.check(use.strict)
            moved, size = tuple[str, ...](), 0
            if self.connected:
                moved, size = self._follow(progress)
                names, more = self._bring_lacking(use, progress)
                moved, size = moved + names, size + more
            self.owner = Place.HOME
        self._origins.cell_begins()
        self._reached.cell_begins(source)
        self.state.cell_begins(source)
        return SwitchReport(moved, size, time.monotonic() - started, self._said())

    def _follow(self, progress: Progress | None) -> Brought:
        """Bring what is small of what the companion changed, since it may have changed anything."""
        is_behind = self._ran_there != self._followed
        if self.owner is Place.GPU and (self._runs_there or is_behind):
            return self._bring([], progress, hand_over=True)
        return (), 0

    def _bring_lacking(self, use: Use, progress: Progress | None) -> Brought:
        """Bring what a cell may read; of what home's memory does not hold, the structure."""
        try:
            brought = self._bring_near(use, progress)
            there = {**self.side.away(), **self._missing.stayed()}
            for name in sorted((use.strict & there.keys()) - use.deletes - self.side.shown.keys()):
                raise cannot_move(name, there[name].reason, Place.GPU)
        except BaseException:
            self._structures.put_away()
            raise
        return brought

    def _bring_near(self, use: Use, progress: Progress | None) -> Brought:
        moved, size = tuple[str, ...](), 0
        tried: set[str] = set()
        while True:
            away = self.side.away()
            lacking = self.side.lacking(_touched(use))
            coming = {name for name in lacking if away[name].can_come} - tried
            if not coming:
                return moved, size
            tried |= coming
            total = sum(away[name].size or 0 for name in coming)
            strict = coming if total <= self.peer.room() else coming & use.strict
            for names in (strict, coming - strict):
                if fits := {name for name in names if not self._large.why(away[name])}:
                    got, more = self._bring(fits, progress, hand_over=False)
                    moved, size = moved + got, size + more
                for name in sorted(names & self.side.away().keys()):
                    self._show(name, must=name in use.strict - use.deletes)

    def _show(self, name: str, *, must: bool) -> None:
        """Show the structure of what does not fit."""
        away = self.side.away()[name]
        if away.can_come and not self._structures.show(name) and must:
            raise self.peer.too_big(away.size or 0)

    def after_home_cell(self, execution_count: int = 0) -> None:
        """Home's code ran."""
        self._structures.put_away()
        self._origins.cell_ended(execution_count)
        self._dirty = True
        self._missing.rebound()
        self._imports.tell()

    def ran_beside(self) -> None:
        """Home's code ran beside the cells (any thread)."""
        self._dirty = self._beside = True
        self._reached.anything()

    def ran_there(self) -> None:
        """The companion runs a callback of the page (any thread)."""
        self._ran_there += 1

    # ---- what people ask

    def drain(self, seconds: float) -> DrainReport:
        """Bring everything, on any thread; it is committed on the main thread."""
        main = threading.current_thread() is threading.main_thread()
        notes = tuple(thread_notes(self._threads.running()))
        try:
            with self._exchange:
                if main:
                    self.commit_pending()
                if not self.connected:
                    left = self.side.away().values()
                    return DrainReport(all(each.is_sealed for each in left), notes=notes)
                is_theirs = self.owner is Place.GPU
                message = self._ask(None, None, hand_over=is_theirs, seconds=seconds)
                parcel, _ = shipping.decode(message.blobs)
                self._arrived.append(message)
                if main:
                    self.commit_pending()
        except GPULeaseError:
            return DrainReport(done=False, notes=notes)
        self._on_staged()
        away = dict(self.side.away() if main else parcel.away)
        away |= {name: Absent(words, can_come=False) for name, words in parcel.stays.items()}
        blockers = tuple(
            VariableStatus(
                name, each.type_name, Place.GPU, each.size, True, self._large.why(each) or _NO_ROOM
            )
            for name, each in sorted(away.items())
            if is_variable(name) and not (each.is_sealed or name in self._missing.conflicts)
        ) + tuple(
            VariableStatus(name, "", Place.CONFLICTED, None, True, conflict_note(name).sentence)
            for name in sorted(self._missing.conflicts)
        )
        return DrainReport(not blockers, blockers, notes)

    @refusing
    def fetch(self, names: Sequence[str]) -> SwitchReport:
        """Bring these names; raises ``unknown_name`` or why one cannot come."""
        started = time.monotonic()
        with self._exchange:
            self.commit_pending()
            away = self.side.away()
            for name in names:
                if name not in away and name not in self.side.ns:
                    note = self._missing.explain(name)
                    sentence = note.sentence if note else f"{name} is not defined anywhere."
                    raise GPULeaseError("unknown_name", sentence)
            wanted = [name for name in names if name in away]
            self._missing.check(wanted)
            moved, size = self._bring(wanted, None, hand_over=False) if wanted else ((), 0)
            for name in wanted:
                if (left := self.side.away().get(name)) is not None:
                    if left.can_come:
                        raise self.peer.too_big(left.size or 0)
                    raise cannot_move(name, left.reason, Place.GPU)
        return SwitchReport(moved, size, time.monotonic() - started, self._said())

    @refusing
    def resolve(self, name: str, keep: str) -> None:
        """End a conflict: ``keep`` is ``home`` or ``gpu``."""
        if name not in self._missing.conflicts:
            raise GPULeaseError("no_conflict", f"{name} is not in conflict.")
        if keep not in {"home", "gpu"}:
            raise GPULeaseError("bad_choice", "Choose home or gpu.")
        values = self._missing.settle(name)
        if keep == "home":
            self.side.ns.update(values)
            self._dirty = True
        else:
            self.fetch([each for each in sorted(values) if each in self.side.away()])

    def recover(self, names: Sequence[str] = ()) -> tuple[Sequence[str], Sequence[Note]]:
        """Accept the older values of lost names, or of all; return them, and why not others."""
        self._dirty = True
        return self._missing.recover(names)

    def status(self) -> Sequence[VariableStatus]:
        """Return every variable and where it is."""
        return self._missing.rows(verified=self.owner is Place.HOME)

    def slow_because(self) -> str:
        """Say why there is no second wire where one is wanted."""
        return "" if self.peer.wire is None else self.peer.wire.slow_because

    def explain(self, name: str) -> Note | None:
        """Say why a name is absent, or None when it is not defined anywhere."""
        return self._missing.explain(name)

    def explain_error(self, error: str) -> str:
        """Say which values the last GPU cell used from a device that is not the GPU, or ""."""
        return self._origins.explain(error, self._last_use.touched & self.side.ns.keys())

    def explain_stayed(self, name: str) -> Note | None:
        """Say why a name of home is not on the GPU's side, or None where it is."""
        away = self._there.get(name)
        if away is None or name not in self.side.ns:
            return None
        return stayed_note(name, "" if away.can_come else away.reason)

    def share_variables(self, names: Collection[str]) -> None:
        """Let these environment variables travel although they hold secrets."""
        self.state.share(names)
        self._dirty = True

    def away_names(self) -> Sequence[str]:
        """Return the names whose value is only away."""
        away = {*self.side.away(), *self._missing.stayed()}
        return sorted(name for name in away if is_variable(name))

    @refusing
    def result(self, execution_count: int) -> Any:
        """Return the value of a GPU cell's result, brought where it is not here.

        With ``LAST_ERROR``: the companion's last error and its frames.
        """
        name = f"Out[{execution_count}]"
        with self._exchange:
            self.commit_pending()
            if execution_count == LAST_ERROR or execution_count not in self._results:
                message = self.peer.ask("result", {"cell": execution_count})
                if not message.body["known"]:
                    why = f"Cell [{execution_count}] left no result to fetch."
                    raise GPULeaseError("no_result", why)
                self._take(message)
            if execution_count not in self._results:
                away = self.side.away().get(name)
                why = away.reason if away else "it does not load in your notebook"
                raise cannot_move(name, why, Place.GPU)
            if execution_count == LAST_ERROR:
                error, frames = self._results.pop(LAST_ERROR)
                if isinstance(error, str):  # a variable's value
                    self.fetch([error])
                    error = self.side.ns[error]
                return error, frames
            return self._results[execution_count]


_NO_ROOM = "Your notebook's memory does not hold it beside what came with it."


def _touched(use: Use) -> Collection[str]:
    return ["*"] if use.unbounded or SUBCLASSES in use.reads else use.touched


def _needed(use: Use) -> Collection[str] | None:
    touched = _touched(use)
    return None if "*" in touched else touched
