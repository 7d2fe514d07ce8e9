"""Values that home and the companion used at the same time, one of them writing.

Owns how that is found and the choice that ends it: neither version is overwritten, the name is
taken away until a person chooses.  What a GPU cell read is known by name; what a thread of home
read is known from its code and what it was given (``concurrent``); a write is known by content.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.transfer.api import Note
from gpulease.transfer.refuse import RefusedError
from gpulease.transfer.values.analysis import Use
from gpulease.transfer.values.groups import Survey, merge, name_root, names_of
from gpulease.transfer.values.ledger import Absent, Base
from gpulease.transfer.values.shipment import Incoming
from gpulease.transfer.values.side import Side
from gpulease.transfer.values.staging import Staging

from .concurrent import ConcurrentThreads, Reader, tasks_alive


class How(Enum):
    """What met."""

    BOTH = "{name} was changed in your notebook and on the GPU at the same time"
    READ_AWAY = "{name} was changed in your notebook while a GPU cell used the value from before"
    READ_HERE = (
        "{name} was changed on the GPU while {thread} in your notebook used the value from before"
    )


@dataclass(frozen=True)
class Conflict:
    """``group``: the names that it takes part with; ``thread``: who read it at home."""

    group: frozenset[str]
    how: How
    thread: str = ""

    def note(self, name: str) -> Note:
        """Say so, and what to do."""
        what = self.how.value.format(name=name, thread=self.thread)
        sentence = (
            f"{what}; neither is used. "
            f"Choose with %gpu resolve {name} home or %gpu resolve {name} gpu."
        )
        return Note("conflicted", sentence, (name,))


@dataclass
class _Window:
    """One GPU cell: what it may have read, and what was found when it ended."""

    use: Use = field(default_factory=Use)
    changed: list[Base] = field(default_factory=list)
    readers: list[tuple[Reader, set[str]]] = field(default_factory=list)
    dirty: bool = False


class Conflicts:
    """``aside`` keeps home's value of a name taken away; ``doubtful`` names may come back."""

    def __init__(
        self, side: Side, threads: ConcurrentThreads, aside: dict[str, Any], doubtful: set[str]
    ) -> None:
        self._side = side
        self._threads = threads
        self._aside = aside
        self._doubtful = doubtful
        self._window = _Window()
        #: Whether code of home may run that no cell begins: a thread or a task that was there.
        self._alive = False
        self.open: dict[str, Conflict] = {}

    # ---- one GPU cell

    def cell_begins(self, use: Use, running: list[threading.Thread]) -> None:
        """The companion owns the namespace; what it got of ``use`` is what was agreed on."""
        late = self._window if self._doubtful else _Window()
        self._window = _Window(use, readers=late.readers, dirty=late.dirty)
        self._threads.begin(running)
        self._alive = bool(running) or tasks_alive(self._side.ns)

    def cell_ended(self, running: list[threading.Thread]) -> None:
        """Look, before anything is taken: who ran here, what it read, what it wrote."""
        ran = self._threads.end(running)
        self._alive |= bool(running)
        if not ran:
            return
        window = self._window
        window.dirty = True
        survey = self._side.survey()
        used = self._agreements(window.use, survey)
        window.changed = [base for base in used if self._changed(base)]
        window.readers += [(reader, self._reach(reader, survey)) for reader in ran]

    def cell_settled(self) -> None:
        """What changed on the GPU is known: the rest of what changed here was only read."""
        changed, self._window.changed = self._window.changed, []
        held = self._side.ledger.base
        for base in changed:
            if any(held.get(root) is base for root in base.roots):  # not set apart before
                self._set_apart(self._names_of(base.roots), base.roots, How.READ_AWAY)

    def mark_dirty(self) -> None:
        """Home code runs on the main thread: what was agreed on may be changed by it."""
        self._window.dirty = True

    def _agreements(self, use: Use, survey: Survey) -> list[Base]:
        """Return what was agreed on of everything that the cell may have used."""
        side = self._side
        held = side.ledger.base
        if use.unbounded:
            roots: Iterable[str] = held
        else:
            reached = side.closure(use.touched, survey, reads=True)
            unbounded = any(g.unbounded for r in reached if (g := survey.by_root.get(r)))
            roots = held if unbounded else reached
        return list({id(b): b for r in roots if (b := held.get(r)) is not None}.values())

    def _reach(self, reader: Reader, survey: Survey) -> set[str]:
        """Return the roots that a thread may have read."""
        side = self._side
        if reader.unbounded:
            return set(survey.by_root)
        near = reader.names & side.ns.keys()
        groups = [g for g in survey.groups if not reader.objects.keys().isdisjoint(g.inner)]
        units = {"u:" + oid for o in reader.objects.values() if (oid := side.registry.find(o))}
        given = {root for group in groups for root in group.roots} | units
        roots = side.closure([*near, *names_of(given)], survey, reads=True) | given
        unbounded = any(g.unbounded for r in roots if (g := survey.by_root.get(r)))
        return set(survey.by_root) if unbounded else roots

    # ---- what arrives

    def find(self, staging: Staging, incoming: Incoming) -> set[int]:
        """Return the staged groups to leave out; what is in conflict is set apart.

        Names that are declared newer away are left out of ``incoming.absent`` likewise.
        """
        found: set[int] = set()
        for index, loaded in staging.loaded.items():
            live = ["u:" + oid for oid in loaded.contents if oid not in staging.fresh]
            roots = [*map(name_root, loaded.names), *live]
            known = any(name in self.open for name in loaded.names)
            if known or self._meets(roots, arrived=True):
                found.add(index)
        if self._window.dirty:
            for name in list(incoming.absent):
                if name in self.open or self._meets([name_root(name)], arrived=False):
                    del incoming.absent[name]
        if incoming.complete:
            self._window = _Window(changed=self._window.changed)
        return found

    def _meets(self, roots: list[str], *, arrived: bool) -> bool:
        """Set apart a group that changed away if home wrote or read it; say whether it did.

        Where nothing of home ran meanwhile it cannot have: what looks like a write was there
        before the switch.
        """
        if not self._window.dirty and not self._alive:
            return False
        side = self._side
        bases = {id(b): b for r in roots if (b := side.ledger.base.get(r)) is not None}
        held = [b for b in bases.values() if arrived or self._window.dirty]
        if any(self._changed(base) for base in held):
            how, thread = How.BOTH, ""
        else:
            thread = self._read_by({r for b in bases.values() for r in b.roots})
            if not thread:
                return False
            how = How.READ_HERE
        everything = frozenset(roots).union(*(base.roots for base in bases.values()))
        self._set_apart(self._names_of(everything), everything, how, thread)
        return True

    def _read_by(self, roots: set[str]) -> str:
        found = (r.thread for r, reach in self._window.readers if not reach.isdisjoint(roots))
        return next(found, "")

    def _changed(self, base: Base) -> bool:
        """Say whether home's content differs from what was agreed on."""
        side = self._side
        values = self._held()
        near = names_of(base.roots)
        if any(name not in values for name in near):
            return False  # deleted or taken away here: only the binding differs
        units = [root[2:] for root in base.roots if root.startswith("u:")]
        survey = side.survey_roots(near, units, values)
        parts = {id(g): g for r in base.roots if (g := survey.by_root.get(r)) is not None}
        merged = merge(parts.values())
        gone = base.roots - merged.key
        if not merged.key <= base.roots or any(not self._dead(root) for root in gone):
            return True
        # What is left of a group cannot be compared with what was agreed on of all of it, where
        # the first of a cell's changes took a closure away.  Who did not run did not write.
        if gone and not self._window.dirty:
            return False
        try:
            packed = side.pack(merged, survey)
        except RefusedError:
            return True
        # Garbage may be collected at any time: that is no write.
        if gone and packed.trace and packed.trace <= base.trace:
            return False
        return bool(gone) or not side.unchanged(merged, survey, packed, base)

    def _held(self) -> dict[str, Any]:
        """Return home's values, those in doubt included."""
        return {n: self._aside[n] for n in self._doubtful if n in self._aside} | self._side.ns

    def _dead(self, root: str) -> bool:
        return root.startswith("u:") and self._side.registry.get(root[2:]) is None

    def _names_of(self, roots: frozenset[str]) -> list[str]:
        """Return the names of a group; of a unit that has none, those that need it."""
        names = names_of(roots)
        if names:
            return names
        side = self._side
        survey = side.survey()
        return [n for n in side.names() if roots & side.closure([n], survey, reads=False)]

    def _set_apart(
        self, names: list[str], roots: frozenset[str], how: How, thread: str = ""
    ) -> None:
        side = self._side
        conflict = Conflict(frozenset(names), how, thread)
        for name in names:
            self.open[name] = conflict
            self._doubtful.discard(name)
            if name in side.ns:
                self._aside[name] = side.ns.pop(name)
            side.ledger.remote.pop(name, None)
        side.ledger.differ((*roots, *map(name_root, names)))

    # ---- the end of it

    def resolve(self, name: str, keep: str) -> list[str]:
        """End a conflict; return all names of its group."""
        if name not in self.open:
            raise GPULeaseError("no_conflict", f"{name} is not in conflict.")
        if keep not in ("home", "gpu"):
            raise GPULeaseError("bad_choice", f"{keep!r} is neither home nor gpu.")
        group = sorted(self.open[name].group)
        for member in group:
            self.open.pop(member, None)
            value = self._aside.pop(member, None)
            if keep == "home" and value is not None:
                self._side.ns[member] = value
            elif keep == "gpu":
                self._side.ledger.remote[member] = Absent(type(value).__name__)
        return group

    def companion_gone(self) -> list[Note]:
        """Only home's versions are left: they are used; return what to say."""
        ended = sorted(self.open)
        for name in ended:
            self.open.pop(name)
            if name in self._aside:
                self._side.ns[name] = self._aside.pop(name)
        return [
            Note(
                "conflicted",
                f"{name} was in conflict; the companion is gone, and the value from home is used.",
                (name,),
            )
            for name in ended
        ]
