"""What arrives from the companion: staged by any thread, committed on home's main thread.

Owns the queue between the two, the order of a commit and its acknowledgement, and the notes that
wait for the next cell.  It asks for nothing; it never unpickles off the main thread.
"""

from __future__ import annotations

import collections
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.sides.names.analysis import Use
from gpulease.transfer.frameworks import sealed
from gpulease.transfer.values.given_up import quietly
from gpulease.transfer.values.groups import names_of
from gpulease.transfer.values.packing.ledger import Absent
from gpulease.transfer.values.packing.loans import lent_in
from gpulease.transfer.values.packing.shipment import Incoming, Outcome
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import Note
from gpulease.transfer_next.peer import Peer
from gpulease.wire.message import Message

from .held_parts import parts_before
from .let_go import let_go_notes, part_notes, replaced_notes
from .stale_references import kept_notes
from .unavailable import Unavailable


@dataclass
class Arrival:
    """A reply of the companion that waits for its commit on the main thread."""

    incoming: Incoming
    number: str
    generation: int
    threads: tuple[str, ...] = ()
    done: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, message: Message) -> Arrival:
        """Decode a reply that carries a shipment."""
        body = message.body
        incoming = Incoming.decode(body, message.blobs)
        return cls(incoming, body["shipment"], body["generation"], tuple(body["threads"]))

    @property
    def names(self) -> list[str]:
        """User names that arrive."""
        return [name for group in self.incoming.groups for name in names_of(group.roots)]

    def deferred(self) -> list[str]:
        """Return names of modules that are not imported here for this alone."""
        incoming = self.incoming
        rows = zip(incoming.groups, incoming.modules, incoming.required, strict=True)
        return [
            name
            for group, module, required in rows
            if module and not required and module not in sys.modules
            for name in names_of(group.roots)
        ]


class Arrivals:
    """``on_staged`` is called on a background thread when ``commit_staged`` has work.

    ``marked`` gives what is away the reason why it stays there."""

    def __init__(
        self,
        side: Side,
        unavailable: Unavailable,
        peer: Peer,
        on_staged: Callable[[], None],
        marked: Callable[[Absent], Absent],
    ) -> None:
        self._side = side
        self._unavailable = unavailable
        self._peer = peer
        self._on_staged = on_staged
        self._marked = marked
        self._staged: collections.deque[Arrival] = collections.deque()
        self._notes: list[Note] = []
        #: Names that GPU cells bound: others who hold what they were bound to keep it rightly.
        self.bound_away: set[str] = set()
        #: What the GPU cell that ran last may have touched.
        self.use = Use()
        self._told_kept: set[str] = set()
        #: The shipment acknowledged last: a question that comes by another way is to wait for it.
        self.acknowledged = ""
        #: The GPU cell that ran last, and after which one home had a name's whole value last.
        self.cell = 0
        self.whole: dict[str, int] = {}
        #: Whether the last arrival held what did not load: asked for again, it comes sealed.
        self.comes_sealed = False

    # ---- committing (main thread)

    @quietly()
    def commit_staged(self) -> bool:
        """Commit what is staged; True if there was something."""
        any_done = False
        while self._staged:
            try:  # it stays in the queue until then: a drain on another thread counts what is here
                self.accept(self._staged[0])
            finally:
                self._staged.popleft()
            any_done = True
        return any_done

    def cell_begins(self, use: Use) -> None:
        """A GPU cell of this use is about to run."""
        self.bound_away |= use.writes
        self.use = use

    def accept(self, arrival: Arrival) -> tuple[tuple[str, ...], bool]:
        """Commit, then tell the companion; return names and whether it was taken."""
        unavailable = self._unavailable
        before = set(unavailable.conflicts.open)
        olds = self._held_now(arrival)
        parts = parts_before(olds)
        side = self._side
        try:
            outcome = side.receive(
                arrival.incoming,
                may_bind=unavailable.may_bind,
                may_remove=unavailable.may_bind,
                before_commit=unavailable.conflicts.find,
            )
            unavailable.committed(arrival.incoming, outcome)
        finally:
            arrival.done.set()
        self._notes += unavailable.conflict_notes(set(unavailable.conflicts.open) - before)
        if outcome.ok:
            deleted = set(arrival.incoming.deleted)
            left = self.bound_away.intersection(arrival.names) | deleted
            for name in (self._told_kept | unavailable.conflicts.open.keys()) & olds.keys():
                del olds[name]
            aside = unavailable.aside
            # First: it lets go of them.
            of_parts = part_notes(side, self.use, olds, left, parts, aside=aside)
            kept = replaced_notes(side, self.use, olds, left, aside) + of_parts
            for name in left & olds.keys():
                del olds[name]
            home = [oid for group in arrival.incoming.groups for oid in lent_in(group.roots)]
            let_go = side.lent.let_go(arrival.incoming.gone, home)
            kept += kept_notes(olds, side.ns, side.registry, aside)
            kept += let_go_notes(side, self.use, let_go, aside)
            kept = [note for note in kept if self._told_kept.isdisjoint(note.names)]
            self._told_kept.update(*(note.names for note in kept))
            self._notes += kept
            self.bound_away.difference_update(arrival.names)
        self.acknowledge(arrival.number, outcome, arrival.generation)
        self.comes_sealed = bool(outcome.culprits)
        if not outcome.ok:
            self._remember_refusals(arrival.incoming, outcome)
            return (), not (outcome.lacks or outcome.missed or self.comes_sealed)
        left_out = outcome.failed.keys() | set(outcome.deferred)
        names = tuple(
            name
            for index, group in enumerate(arrival.incoming.groups)
            if index not in left_out
            for name in names_of(group.roots)
        )
        self.whole.update(dict.fromkeys(names, self.cell))
        self._notes += _sealed_notes(names, side.ns)
        return names, not (self.comes_sealed or outcome.lacks)

    def confirmed(self, arrival: Arrival) -> bool:
        """Say whether what arrived is still what is there (a user's thread may have written)."""
        return bool(self._peer.ask("confirm", {"shipment": arrival.number}).body["same"])

    def acknowledge(self, number: str, outcome: Outcome, generation: int) -> None:
        """Tell the companion what became of its shipment."""
        if self._peer.wire is not None and not self._peer.wire.broken:
            body = {"shipment": number, "outcome": outcome.to_json(), "generation": generation}
            self._peer.wire.request("ack", body)
            self.acknowledged = number

    def _held_now(self, arrival: Arrival) -> dict[str, Any]:
        """Return home's present values of the names that arrive or are deleted."""
        names = {*arrival.names, *arrival.incoming.deleted}
        held = {n: self._side.ns[n] for n in names if n in self._side.ns}
        return held | {n: v for n, v in self._unavailable.aside.items() if n in names - held.keys()}

    def _remember_refusals(self, incoming: Incoming, outcome: Outcome) -> None:
        if outcome.lacks:
            return
        remote = self._side.ledger.remote
        refusals = outcome.refusals([group.roots for group in incoming.groups])
        for name in refusals.keys() & remote.keys():
            remote[name] = replace(remote[name], blocker=refusals[name])

    # ---- notes

    def note(self, notes: Sequence[Note]) -> None:
        """Keep what is to be said under the next cell."""
        self._notes += notes

    def take_notes(self) -> tuple[Note, ...]:
        """Return each thing to say once; commits between cells wait here for the next one."""
        notes, self._notes = tuple(dict.fromkeys(self._notes)), []
        return notes

    # ---- staging (write-behind's thread)

    def stage(self, message: Message) -> Arrival:
        """Queue a reply for the main thread's next ``commit_staged``."""
        arrival = Arrival.of(message)
        self._staged.append(arrival)
        self._on_staged()
        return arrival

    def release_waiting(self) -> None:
        """Let write-behind go on although its arrivals are not committed yet."""
        for arrival in list(self._staged):
            arrival.done.set()

    def uncommitted(self) -> dict[str, Absent]:
        """Return what is away and not even staged here."""
        away = dict(self._side.ledger.remote)
        for arrival in list(self._staged):
            away |= arrival.incoming.absent
            coming = set(arrival.names).difference(arrival.deferred())
            for name in (*coming, *arrival.incoming.same, *arrival.incoming.deleted):
                away.pop(name, None)
        return {name: self._marked(absent) for name, absent in away.items()}

    def names_to_bring(self) -> list[str]:
        """Return away names that could come, the smallest first."""
        remote = self.uncommitted()
        able = [name for name, absent in remote.items() if not absent.blocker]
        return sorted(able, key=lambda n: (remote[n].size or 0, n))

    def note_blocker(self, name: str, error: GPULeaseError) -> None:
        """Remember why a name cannot come."""
        staged = (arrival.incoming.absent for arrival in list(self._staged))
        for table in (self._side.ledger.remote, *staged):
            if name in table:
                table[name] = replace(table[name], blocker=error.sentence)


def _sealed_notes(names: Sequence[str], values: Mapping[str, Any]) -> list[Note]:
    """Name the values that arrived sealed: they are whole, but cannot be used here."""
    found = [(name, values.get(name)) for name in names]
    return [
        Note("sealed", f"{name}: {sealed.sentence(value)} GPU cells have it whole.", (name,))
        for name, value in found
        if type(value) is sealed.Sealed
    ]
