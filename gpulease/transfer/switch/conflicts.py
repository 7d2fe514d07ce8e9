"""Values that home and the companion used at the same time, one of them writing.

Owns how that is found and the choice that ends it: neither version is overwritten, the name is
taken away until a person chooses.  What a GPU cell read is known by name; what a thread of home
read is known from its code and what it was given (``concurrent``); a write is known by content.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.sides.names.analysis import Use
from gpulease.transfer.values.groups import Survey, merge, name_root, names_of
from gpulease.transfer.values.kinds.units import apply_content
from gpulease.transfer.values.landing.staging import Loaded, Staging
from gpulease.transfer.values.packing.ledger import Absent, Base
from gpulease.transfer.values.packing.loans import lent_in
from gpulease.transfer.values.packing.shipment import Incoming
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import Note
from gpulease.transfer_next.refuse import RefusedError

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
    """``group``: the names that it takes part with; ``thread``: who read it at home.

    ``theirs`` are objects of home, and what the GPU made of them before it let go of them.
    """

    group: frozenset[str]
    how: How
    thread: str = ""
    theirs: Sequence[tuple[Any, Any]] = ()

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
        #: Whether a callback of the page ran on a subshell since the GPU cell began.
        self._beside = False
        self.open: dict[str, Conflict] = {}
        #: Of these the names that the GPU's side deleted.
        self._deleted: set[str] = set()

    # ---- one GPU cell

    def cell_begins(self, use: Use, running: list[threading.Thread]) -> None:
        """The companion owns the namespace; what it got of ``use`` is what was agreed on."""
        late = self._window if self._doubtful else _Window()
        self._window = _Window(use, readers=late.readers, dirty=late.dirty)
        self._threads.begin(running)
        self._beside = False
        self._alive = bool(running) or tasks_alive(self._side.ns)

    def cell_ended(self, running: list[threading.Thread]) -> None:
        """Look, before anything is taken: who ran here, what it read, what it wrote."""
        ran = self._threads.end(running)
        self._alive |= bool(running)
        if not ran and not self._beside:
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

    def wrote_beside(self) -> None:
        """Home code ran that no cell began (any thread).

        What it read is as it was before the GPU cell; what it wrote is known by content.
        """
        self._beside = self._window.dirty = True

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

        Names that are declared newer away or deleted are left out of ``incoming`` likewise.
        """
        found: set[int] = set()
        lent_first = sorted(
            staging.loaded.items(), key=lambda each: not lent_in(each[1].arrived.roots)
        )
        for index, loaded in lent_first:
            live = ["u:" + oid for oid in loaded.contents if oid not in staging.fresh]
            lent = lent_in(loaded.arrived.roots)
            if len(lent) == len(loaded.arrived.roots) and not loaded.arrived.risen:
                found.add(index)  # nobody changed there what nobody there has any more
                continue
            names = [*loaded.names, *self._leading_to([*lent, *(root[2:] for root in live)])]
            roots = [*map(name_root, names), *live]
            known = any(name in self.open for name in loaded.names)
            theirs = _contents_of(lent, loaded, staging)
            if known or self._meets(roots, arrived=True, theirs=theirs):
                found.add(index)
        if self._window.dirty:
            for name in list(incoming.absent):
                if name in self.open or self._meets([name_root(name)], arrived=False):
                    del incoming.absent[name]
        self._deleted.update(name for name in incoming.deleted if name in self.open)
        incoming.deleted = tuple(name for name in incoming.deleted if name not in self.open)
        if incoming.complete:
            self._window = _Window(changed=self._window.changed)
        return found

    def _meets(
        self, roots: list[str], *, arrived: bool, theirs: Sequence[tuple[Any, Any]] = ()
    ) -> bool:
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
        self._set_apart(self._names_of(everything), everything, how, thread, theirs)
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

    def _leading_to(self, oids: list[str]) -> list[str]:
        """Return the names of home that lead to any of these objects, and went there with it."""
        side = self._side
        if not self._window.dirty and not self._alive:
            return []
        values = self._held()
        near = [name for name in side.lent.names_of(oids) if name in values]
        wanted = {id(obj) for oid in oids if (obj := side.registry.get(oid)) is not None}
        groups = side.survey_roots(near, (), values).groups if near else ()
        return [n for g in groups if not wanted.isdisjoint(g.inner) for n in g.names]

    def _names_of(self, roots: frozenset[str]) -> list[str]:
        """Return the names of a group; of a unit that has none, those that need it."""
        names = names_of(roots)
        if names:
            return names
        side = self._side
        survey = side.survey()
        return [n for n in side.names() if roots & side.closure([n], survey, reads=False)]

    def _set_apart(
        self,
        names: list[str],
        roots: frozenset[str],
        how: How,
        thread: str = "",
        theirs: Sequence[tuple[Any, Any]] = (),
    ) -> None:
        side = self._side
        conflict = Conflict(frozenset(names), how, thread, theirs)
        self._deleted.difference_update(names)
        for name in names:
            self.open[name] = conflict
            self._doubtful.discard(name)
            if name in side.ns:
                self._aside[name] = side.ns.pop(name)
            side.ledger.remote.pop(name, None)
        side.ledger.differ((*roots, *map(name_root, names)))

    # ---- the end of it

    def resolve(self, name: str, keep: str) -> list[str]:
        """End a conflict; return all names of its group that the chosen side has."""
        if name not in self.open:
            raise GPULeaseError("no_conflict", f"{name} is not in conflict.")
        if keep not in ("home", "gpu"):
            raise GPULeaseError("bad_choice", f"{keep!r} is neither home nor gpu.")
        group = sorted(self.open[name].group)
        deleted = self._deleted if keep == "gpu" else set()
        for obj, content in self.open[name].theirs if keep == "gpu" else ():
            apply_content(obj, content, None)
        for member in group:
            self.open.pop(member, None)
            value = self._aside.pop(member, None)
            if keep == "home" and value is not None:
                self._side.ns[member] = value
            elif keep == "gpu" and member not in deleted:
                self._side.ledger.remote[member] = Absent(type(value).__name__)
        return [member for member in group if member not in deleted]

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


def _contents_of(lent: list[str], loaded: Loaded, staging: Staging) -> list[tuple[Any, Any]]:
    """Return the objects here that no name there leads to, with what they are to be."""
    return [(staging.units[oid], loaded.contents[oid]) for oid in lent if oid in loaded.contents]
