"""Values that are not simply here or there: put aside, in doubt, lost, in conflict, parked.

Owns what home keeps back so that nothing old is read in place of something new.  It moves nothing;
``conflicts`` finds what both sides used, ``messages`` has the words.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.sides.looks import is_a
from gpulease.sides.names.analysis import Use
from gpulease.sides.names.variables import is_user_name
from gpulease.transfer.frameworks import sealed
from gpulease.transfer.values.groups import counted_with, name_root
from gpulease.transfer.values.kinds.units import is_unit
from gpulease.transfer.values.packing.ledger import Absent
from gpulease.transfer.values.packing.shipment import Incoming, Outcome
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import Note, Place, VariableStatus
from gpulease.transfer_next.messages import Lost, away_note, loss_notes, not_recovered, stayed_note
from gpulease.transfer_next.stayed import type_name

from .concurrent import ConcurrentThreads
from .conflicts import Conflicts


class Unavailable:
    """Home's keeper of values that are not in the namespace."""

    def __init__(self, side: Side, threads: ConcurrentThreads) -> None:
        self.side = side
        self.aside: dict[str, Any] = {}
        self.doubtful: set[str] = set()
        self.lost: dict[str, Lost] = {}
        self.conflicts = Conflicts(side, threads, self.aside, self.doubtful)
        self._epochs: dict[int, set[str]] = {}
        self._bound_at_switch: dict[str, int] = {}

    # ---- removal and return

    def put_aside(self, name: str, value: Any) -> None:
        """Keep the older value of a name that is removed, for a recovery."""
        self.aside[name] = value

    def handed_over(self, use: Use, running: list[threading.Thread]) -> None:
        """The companion owns the namespace now: bindings here are what they are until it ends."""
        self.conflicts.cell_begins(use, running)
        self._bound_at_switch = {name: id(value) for name, value in list(self.side.ns.items())}

    def taken_back(self) -> None:
        """Home owns the namespace: whatever is bound here from now on is home's."""
        self._bound_at_switch = {}

    def may_bind(self, name: str) -> bool:
        """A name bound or deleted at home since the switch is home's: what arrives is not bound."""
        if name in self.conflicts.open:
            return False
        if name in self.side.ledger.superseded and name not in self.side.ns:
            return False  # deleted here, which is not told yet
        if name not in self.side.ns or name_root(name) in self.side.ledger.base:
            return True
        return self._bound_at_switch.get(name) == id(self.side.ns[name])

    def rebound(self) -> None:
        """Home code ran; names it bound anew are neither lost nor in conflict any more."""
        self.conflicts.mark_dirty()
        for name in [n for n in (*self.conflicts.open, *self.lost) if n in self.side.ns]:
            self._end_conflict(name)
            self.lost.pop(name, None)
        for name in [n for n in self.aside if n in self.side.ns]:
            del self.aside[name]

    def doubt(self, names: Iterable[str]) -> None:
        """Take names away that a GPU cell may have changed, until that is known."""
        side = self.side
        for name in names:
            if name in side.ns:
                value = side.ns.pop(name)
                self.aside[name] = value
                self.doubtful.add(name)
                side.ledger.remote[name] = Absent(type_name(value), sure=False)

    def unsure(self) -> bool:
        """Say whether a name is in doubt that the companion may not have, or has put away."""
        base, withheld = self.side.ledger.base, self.side.ledger.withheld
        return any(name_root(n) not in base or n in withheld for n in self.doubtful)

    def committed(self, incoming: Incoming, outcome: Outcome) -> None:
        """After a commit: give back what proved unchanged, forget what is replaced."""
        if not outcome.ok:
            return
        side = self.side
        arrived = {r[2:] for g in incoming.groups for r in g.roots if r.startswith("n:")}
        unchanged = set(incoming.same)
        if incoming.complete:  # and what the companion does not speak of, it never had
            unchanged |= self.doubtful - {*arrived, *incoming.absent, *incoming.deleted}
        for name in unchanged & self.doubtful & self.aside.keys():
            side.ns[name] = self.aside.pop(name)
            side.ledger.remote.pop(name, None)
        self.doubtful.difference_update(unchanged)
        for name in (*arrived, *incoming.deleted):
            self.doubtful.discard(name)
            if name in side.ns or name in incoming.deleted:
                self.aside.pop(name, None)
                self.lost.pop(name, None)
        self.doubtful.difference_update(incoming.absent)
        self._remember_epochs(incoming, arrived)

    def _remember_epochs(self, incoming: Incoming, arrived: set[str]) -> None:
        """Names one cell changed belong together until all of them are home."""
        for name, absent in incoming.absent.items():
            if absent.cell is not None:
                self._epochs.setdefault(absent.cell, set()).update({name} | arrived)
        waiting = self.side.ledger.remote
        self._epochs = {c: names for c, names in self._epochs.items() if names & waiting.keys()}

    # ---- conflicts

    def settle_conflicts(self) -> list[Note]:
        """A GPU cell's changes are known: find what it only read; return what to say."""
        before = set(self.conflicts.open)
        self.conflicts.cell_settled()
        return self.conflict_notes(set(self.conflicts.open) - before)

    def conflict_notes(self, names: Iterable[str]) -> list[Note]:
        """Return what to say under the cell where these came into conflict."""
        return [self.conflicts.open[name].note(name) for name in sorted(names)]

    # ---- loss

    def companion_died(self, running: Use | None, cell: str) -> list[Note]:
        """Mark as lost what was newer away; return what to say."""
        side = self.side
        died: dict[str, Lost] = {}
        for name, absent in side.ledger.remote.items():
            made = cell if absent.cell is None else str(absent.made or absent.cell)
            if absent.type_name != "module":  # to be imported again, which loses nothing
                died[name] = Lost(made)
        for number, names in self._epochs.items():
            for name in names - died.keys():
                if name in side.ns and not _is_imported(side.ns[name]):
                    died[name] = Lost(str(number), partial=True)
        use = running or Use()
        for name in use.changes - use.imports:
            called = name not in use.writes and _is_imported(side.ns.get(name))
            if is_user_name(name) and name not in died and not called:
                died[name] = Lost(cell)
        for name in died:
            if name in side.ns:
                self.aside[name] = side.ns.pop(name)
        self.lost.update(died)
        return loss_notes(died, self.aside) + self._clear()

    def companion_left(self, lost: Collection[str] = ()) -> list[Note]:
        """The companion ended in good order: what is newer there was parked, except ``lost``."""
        for name, absent in self.side.ledger.remote.items():
            self.lost[name] = Lost(str(absent.made or absent.cell or ""), parked=name not in lost)
        left = {n: self.lost[n] for n in self.side.ledger.remote if n not in self.side.ns}
        return loss_notes(left, self.aside) + self._clear()

    def _clear(self) -> list[Note]:
        self.side.ledger.remote.clear()
        self.doubtful.clear()
        self._epochs.clear()
        return self.conflicts.companion_gone()

    def unparked(self, absent: Mapping[str, Absent], failed: Mapping[str, str]) -> list[Note]:
        """A new companion has read what was parked: those names are away again, others lost.

        ``failed`` says why it could not read one.
        """
        for name, what in absent.items():
            if name in self.lost and name not in self.side.ns:
                self.side.ledger.remote[name] = replace(what, blocker="")
                del self.lost[name]
        gone = sorted(name for name, lost in self.lost.items() if lost.parked)
        for name in gone:
            why = failed.get(name, "it was not found there any more")
            self.lost[name] = replace(self.lost[name], parked=False, why=why)
        return loss_notes({n: self.lost[n] for n in gone if n not in self.side.ns}, self.aside)

    def recover(self, names: Sequence[str]) -> tuple[list[str], list[Note]]:
        """Accept older values of lost names, of all where none is named: they are home's again.

        Returns which there were, and of the others that are named why not.
        """
        asked = dict.fromkeys(names or self.lost)
        found = [name for name in asked if name in self.lost and name in self.aside]
        for name in found:
            self.side.ns[name] = self.aside.pop(name)
            del self.lost[name]
        return found, [not_recovered(name, self.lost.get(name)) for name in asked
                       if name not in found]  # fmt: skip

    def let_delete(self, names: Collection[str]) -> None:
        """Let a cell delete names that are not here: they need not come for it.

        Unless it fails before, as it deletes what was never bound.
        """
        side = self.side
        known = {*self.lost, *self.conflicts.open, *side.ledger.remote}
        if any(name not in side.ns and name not in known for name in names):
            return
        for name in names:
            if name not in side.ns:
                side.ns[name] = None
                self.doubtful.discard(name)
                self._end_conflict(name)
                for table in (self.lost, self.aside):
                    table.pop(name, None)
        side.supersede()

    def _end_conflict(self, name: str) -> None:
        """A name in conflict is bound anew or deleted here: the other side still has its own."""
        if self.conflicts.open.pop(name, None) is not None:
            self.side.ledger.unagreed.add(name)

    # ---- saying so

    def check(self, use: Use) -> None:
        """Raise for what the cell reads first that is lost or in conflict, or has a part of it."""
        tied = self.side.tied(use.reads) if self.lost or self.conflicts.open else set()
        for name in sorted(use.strict | tied):
            self.check_name(name)

    def check_name(self, name: str) -> None:
        """Raise when ``name`` is lost or in conflict and not bound anew."""
        if name in self.side.ns:
            return
        if name in self.lost or name in self.conflicts.open:
            note = self.explain(name)
            assert note is not None
            raise GPULeaseError(note.reason, note.sentence)

    def explain_stayed(self, name: str) -> Note | None:
        """Say why a name that is here is missed by a GPU cell, or None where it was there."""
        ledger = self.side.ledger
        there = name_root(name) in ledger.base and name not in ledger.withheld
        if name not in self.side.ns or there or not is_user_name(name):
            return None
        return stayed_note(name, ledger.blocked.get(name, ""))

    def explain(self, name: str) -> Note | None:
        """Say why ``name`` is not here, or None."""
        side = self.side
        if name in side.ns:
            return None
        if name in self.conflicts.open:
            return self.conflicts.open[name].note(name)
        lost = self.lost.get(name)
        if lost is not None:
            return lost.note(name, older=name in self.aside)
        absent = side.ledger.remote.get(name)
        if absent is None:
            return None
        return away_note(name, absent.type_name, absent.size, absent.blocker)


def _is_imported(value: Any) -> bool:
    """Say whether a value is a module's, the same on both sides: a cell that dies takes none."""
    if is_a(value, ModuleType):
        return True
    return is_a(value, type | FunctionType | BuiltinFunctionType) and not is_unit(value)


def status_rows(unavailable: Unavailable, *, unverified: bool) -> list[VariableStatus]:
    """Return a row for every name, sorted."""
    side = unavailable.side
    rows: dict[str, VariableStatus] = {}
    for name in side.names():
        root = name_root(name)
        base = side.ledger.base.get(root)
        both = base is not None
        shared = counted_with(name, base.roots) if base is not None else ""
        value = side.ns[name]
        is_sealed = type(value) is sealed.Sealed
        rows[name] = VariableStatus(
            name,
            sealed.kind_of(value) if is_sealed else type_name(value),
            Place.BOTH if both else Place.HOME,
            side.ledger.sizes.get(root) if not shared else None,
            both and not unverified,
            sealed.sentence(value) if is_sealed else side.ledger.blocked.get(name, ""),
            shared,
        )
    for name, absent in side.ledger.remote.items():
        rows[name] = VariableStatus(
            name, absent.type_name, Place.GPU, absent.size, absent.sure, absent.blocker,
            absent.shared_with,
        )  # fmt: skip
    for name, lost in unavailable.lost.items():
        if name not in side.ns:
            place = Place.PARKED if lost.parked else Place.LOST
            rows[name] = VariableStatus(name, "", place, None, True)
    for name in unavailable.conflicts.open:
        rows[name] = VariableStatus(name, "", Place.CONFLICTED, None, True)
    return [rows[name] for name in sorted(rows)]
