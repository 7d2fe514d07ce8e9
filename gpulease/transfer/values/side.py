"""One side of the two: surveys its namespace, plans shipments, receives them.

Owns what both halves do alike: which groups changed against the own baseline, what is sent and
what is declared absent, staging and commit of what arrives, and the baseline after it.  It knows
nothing of threads, sockets, cells' order or who owns the namespace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from gpulease.sides.looks import is_a
from gpulease.sides.names.analysis import SUBCLASSES
from gpulease.sides.names.variables import user_names
from gpulease.sides.state.process_state import ProcessState
from gpulease.sides.undisturbed import undisturbed
from gpulease.transfer.registry import Registry
from gpulease.transfer.values.kinds.units import UnitBook, is_unit
from gpulease.transfer.values.landing.commit import commit
from gpulease.transfer.values.landing.staging import LoadError, Staging
from gpulease.transfer.values.packing.chunks import complete
from gpulease.transfer.values.packing.kept import Kept
from gpulease.transfer.values.packing.ledger import Absent, Base, Ledger
from gpulease.transfer.values.packing.loans import Lent, Loans
from gpulease.transfer.values.packing.pickling import Alike, Packed, Packer
from gpulease.transfer.values.packing.shipment import Incoming, Outcome
from gpulease.transfer.values.state.own_objects import OwnObjects
from gpulease.transfer.values.walks.walk import Walk
from gpulease.transfer_next.api import Place, TransferSettings
from gpulease.transfer_next.refuse import RefusedError
from gpulease.transfer_next.stayed import type_name

from . import given_up
from .collector import collector_waits
from .groups import Check, Group, Survey, counted_with, merge, name_root, names_of
from .older import packed_by_older
from .ties import Ties

_ASKS_FOR_CLASSES = name_root(SUBCLASSES)
#: What a class that is not here is a kind of.
_CLASSES = frozenset({"type", "ABCMeta"})
BeforeCommit = Callable[[Staging, Incoming], set[int]]
Hidden = Collection[str] | Callable[[], Collection[str]]


@dataclass(frozen=True)
class _May:
    """What who receives lets a commit do (see ``Side.receive``)."""

    bind: Callable[[str], bool]
    remove: Callable[[str], bool]
    before_commit: BeforeCommit


class Side:
    """State of one side; every method runs under that side's transfer lock."""

    def __init__(
        self,
        label: str,
        namespace: dict[str, Any],
        hidden: Hidden,
        settings: TransferSettings,
        state: ProcessState | None = None,
    ) -> None:
        self.label = label
        self.ns = namespace
        self.settings = settings
        self.registry = Registry(label)
        self.ledger = Ledger()
        self.state = state or ProcessState()
        self.own = OwnObjects(self.registry, self.state.own, self.state.bindings)
        self.state.on_import = self.own.look
        self.book = UnitBook(namespace, self.registry)
        culprits = self.ledger.culprits if label == "a" else ()
        #: Values that stay the objects that they are, by id: they are no units.
        self.lasting = Registry(label)
        self.packer = Packer(namespace, self.registry, self.book, self.lasting, culprits)
        self.kept = Kept(namespace, self.registry, self.ledger)
        #: On the GPU's side: what home holds besides its names.
        self.loans = Loans()
        self.ties = Ties()
        self.lent = Lent()
        self._hidden = hidden
        self._makers: dict[str, tuple[int, int | None]] = {}
        self.on_remove: Callable[[str, Any], None] = lambda _name, _value: None
        #: Values by name that were taken out of the namespace and may come back.
        self.aside: Mapping[str, Any] = {}
        #: Whether the user's code may run here beside cells.
        self.runs_beside: Callable[[], bool] = lambda: False
        #: What frameworks noted of values since the last cell, where that is kept.
        self.noted: dict[Any, dict[Any, Any]] | None = None
        #: Values by name that are as agreed here, until the other side has looked at its own.
        self.withheld: dict[str, Any] = {}

    @property
    def place(self) -> Place:
        """Where this side is."""
        return Place.HOME if self.label == "h" else Place.GPU

    # ---- looking

    def names(self) -> list[str]:
        """Return the user's names here, sorted."""
        hidden = self._hidden() if callable(self._hidden) else self._hidden
        return user_names(self.ns, hidden)

    def survey(self, names: Iterable[str] | None = None, check: Check | None = None) -> Survey:
        """Walk from these names (all by default)."""
        self.own.look()
        walk = Walk(self.ns, self.registry, self.book, check, noted=self.noted)
        chosen = self.names() if names is None else [n for n in names if n in self.ns]
        groups = walk.run(chosen, self._units_with(chosen))
        return Survey(groups, walk.units, walk.used_globals, self.ns, walk.held)

    def _units_with(self, names: Iterable[str]) -> set[str]:
        """Return units agreed on together with names, though nothing here may lead to them."""
        chosen, held = set(names), self.ledger.base
        bases = [b for n in chosen if (b := held.get(name_root(n))) is not None]
        units = {root[2:] for base in bases for root in base.roots if root.startswith("u:")}
        return units | self.kept.units(chosen)

    def survey_roots(
        self, names: Iterable[str], oids: Iterable[str], values: Mapping[str, Any] | None = None
    ) -> Survey:
        """Walk from these names and units; ``values`` may hold names that were taken away."""
        held = self.ns if values is None else values
        walk = Walk(self.ns, self.registry, self.book, values=held)
        groups = walk.run(names, oids)
        return Survey(groups, walk.units, walk.used_globals, held, walk.held)

    def pack(self, group: Group, survey: Survey, check: Check | None = None) -> Packed:
        """Pack a group and remember its size; raises RefusedError."""
        packed = self.packer.pack(
            group, survey.units, survey.used_globals, check=check, values=survey.values
        )
        self.ledger.sizes.update(dict.fromkeys(group.roots, packed.nbytes))
        return packed

    def unchanged(
        self, group: Group, survey: Survey, packed: Packed, before: Base | Packed
    ) -> bool:
        """Say whether the group, just ``packed``, is what it was ``before``.

        Some types pickle differently each time.  Where the same objects refer to the same objects,
        a second pickle tells such a group from one whose change the first look cannot see.
        """
        if packed.digest == before.digest:
            return True
        if not packed.trace or not packed.trace <= before.trace:
            return False
        try:
            return self.pack(group, survey).digest != packed.digest
        except RefusedError:
            return False

    def closure(self, names: Iterable[str], survey: Survey, *, reads: bool) -> set[str]:
        """Return the roots that these names need in the end, to a fixed point.

        Follows groups' units; with ``reads`` also the globals that their functions read, and the
        notebook's subclasses where one of them asks a class for these.
        """
        roots: set[str] = set()
        queue = [name_root(name) for name in names]
        while queue:
            root = queue.pop()
            if root in roots:
                continue
            roots.add(root)
            if reads and root == _ASKS_FOR_CLASSES:
                queue += map(name_root, self._subclasses())
            group = survey.by_root.get(root)
            if group is None:
                absent = self.ledger.remote.get(root[2:]) if root.startswith("n:") else None
                if reads and absent is not None:
                    queue += [name_root(name) for name in absent.reads]
                continue
            roots.update(group.roots)  # once, however many they are
            queue += ["u:" + oid for oid in group.needs]
            if reads:
                queue += [name_root(name) for name in group.reads]
        return roots

    def _subclasses(self) -> list[str]:
        """Return the variables that are classes of which a base is one of the notebook's."""
        here = [
            name
            for name in self.names()
            if is_a(kind := self.ns[name], type) and any(map(is_unit, kind.__bases__))
        ]
        return here + [
            name for name, each in self.ledger.remote.items() if each.type_name in _CLASSES
        ]

    def tied(self, names: Iterable[str]) -> set[str]:
        """Return names that are not here, and whose values share a part with what these lead to."""
        near = [name for name in names if name in self.ns]
        roots = self.closure(near, self.survey(near), reads=True)
        return self.ties.of(roots) - self.ns.keys()

    def absent(self, name: str, survey: Survey | None, cell: int | None = None) -> Absent:
        """Describe a name of this side for the other one."""
        group = survey.by_root.get(name_root(name)) if survey is not None else None
        size = None
        if group is not None:
            size = self.ledger.packed_bytes(group) or group.nbytes or None
        reads = tuple(sorted(survey.reads_of(group))) if group and survey else ()
        kind = type_name(self.ns[name]) if name in self.ns else "object"
        blocker = self.ledger.blocked.get(name, "")
        shared = counted_with(name, group.roots) if group is not None else ""
        return Absent(
            kind, None if shared else size, blocker, cell, reads, made=self._maker(name, cell),
            shared_with=shared,
        )  # fmt: skip

    def _maker(self, name: str, cell: int | None) -> int | None:
        """Return the cell that first bound ``name`` to the object that it has now."""
        number = id(self.ns.get(name))
        if self._makers.get(name, (None, None))[0] != number:
            self._makers[name] = (number, cell)
        return self._makers[name][1]

    def supersede(self) -> None:
        """A name bound here again is this side's: what the other one holds of it is old."""
        for name in [n for n in self.ledger.remote if n in self.ns]:
            del self.ledger.remote[name]
            if name in self.withheld:
                del self.withheld[name]
                # Nobody knows whether the other side still holds what was agreed on.
                self.ledger.differ_with_units([name])
            self.ledger.superseded.add(name)

    def forget_peer(self) -> None:
        """The other side is new: it holds nothing, and nothing of its own waits here."""
        self.ledger.forget_peer()
        self.state.forget_peer()
        self.withheld.clear()
        self.loans.clear()
        self.lent.clear()

    # ---- receiving

    @collector_waits()
    def receive(
        self,
        incoming: Incoming,
        *,
        may_bind: Callable[[str], bool] = lambda _name: True,
        may_remove: Callable[[str], bool] = lambda _name: True,
        before_commit: BeforeCommit = lambda _staging, _incoming: set(),
    ) -> Outcome:
        """Load everything, then commit it as a whole; nothing is changed unless ``ok``.

        A group that fails in the commit itself is ``failed`` in what is ``ok``: its names are
        absent here, and the other side still has them.  So is one of a later wave (see ``waves``)
        that does not load, for what came before it is in place by then.

        ``before_commit`` returns indices of staged groups to leave out (conflicts); it may take
        names out of what is declared absent.
        """
        self.noted = None  # it holds values
        modules = zip(incoming.modules, incoming.required, strict=True)
        there = [not name or required or name in sys.modules for name, required in modules]
        kept = [index for index, is_there in enumerate(there) if is_there]
        deferred = tuple(index for index, is_there in enumerate(there) if not is_there)
        if missed := complete(
            [incoming.groups[i] for i in kept], self._older, written=self.runs_beside
        ):
            return Outcome(False, missed=missed)
        self.state.prepare(incoming.state)
        self.own.look()
        outcome = Outcome(True, deferred=deferred)
        may = _May(may_bind, may_remove, before_commit)
        # What a later wave refers to, nobody else may have yet; and what nobody has in the end is
        # told to be gone by the next answer, as this one says that it came.
        held: list[Any] = []
        for number, (part, indices) in enumerate(incoming.in_waves(kept)):
            staging = Staging(
                self.ns, self.registry, [part.groups[i] for i in indices], own=self.own
            )
            try:
                more = self._take(part, staging, indices, deferred, may, first=number == 0)
                held += staging.units.values()
            finally:
                staging.release()
            outcome = outcome.then(more)
            if not outcome.ok:
                return outcome
        gone = tuple(self.registry.prune())
        self.lasting.prune()
        del held
        return replace(outcome, gone=gone)

    def _older(self, names: Collection[str]) -> Iterator[Packed]:
        """Pack what is here of these names, in the namespace or put away."""
        values = {**self.aside, **self.withheld, **self.ns}
        survey = self.survey_roots([name for name in names if name in values], (), values)
        for group in survey.groups:
            if group.names:
                with suppress(RefusedError):
                    yield self.packer.pack(group, survey.units, survey.used_globals, values=values)

    def _take(
        self,
        incoming: Incoming,
        staging: Staging,
        kept: list[int],
        deferred: tuple[int, ...],
        may: _May,
        *,
        first: bool,
    ) -> Outcome:
        if self.label == "h":  # the other one's names are taken away where they are older
            staging.failed = packed_by_older(
                staging.groups, incoming.groups, self.ns.keys(), may.bind, self._is_newer
            )
        staging.load()
        failed = {kept[i]: error for i, error in staging.failed.items()}
        lacks = {oid for error in failed.values() for oid in error.lacks}
        found = {e.culprit for e in failed.values() if e.culprit is not None}
        culprits = tuple(sorted(found - self.ledger.culprits))
        self.ledger.culprits |= found
        if first and (lacks or any(incoming.required[index] for index in failed)):
            reasons = {i: e.reason for i, e in failed.items()}
            return Outcome(False, reasons, (), tuple(sorted(lacks)), culprits=culprits)
        # What is told of for the first time will come sealed.
        reasons = {i: "" if e.culprit in culprits else e.reason for i, e in failed.items()}
        waiting = _for_want_of(incoming, failed, deferred)
        missing = reasons | dict.fromkeys((*deferred, *waiting), "")
        with undisturbed():
            skipped = {kept[i] for i in may.before_commit(staging, incoming)}
            for index in skipped:
                staging.loaded.pop(kept.index(index), None)
            bound = self._commit(incoming, staging, missing, may.bind, may.remove)
            broken = {kept[i]: e.reason for i, e in staging.failed.items() if kept[i] not in failed}
            dropped = self._leave_broken(incoming, broken)
        reasons = {i: why for i, why in reasons.items() if i not in waiting} | broken
        self._after_commit(staging, bound.difference(dropped))
        return Outcome(
            True, reasons, waiting, tuple(sorted(lacks)), tuple(sorted(skipped)), (), culprits,
            dropped,
        )  # fmt: skip

    def _is_newer(self, name: str) -> bool:
        """Say whether what a name is bound to here is not what the other side has of it."""
        survey = self.survey([name])
        reached = {
            id(g): g
            for r in self.closure([name], survey, reads=False)
            if (g := survey.by_root.get(r)) is not None
        }
        return not all(self._is_as_agreed(group, survey) for group in reached.values())

    def _is_as_agreed(self, group: Group, survey: Survey) -> bool:
        base = self.ledger.common(group)
        if base is None or base.roots != group.key:
            return False
        try:
            return self.unchanged(group, survey, self.pack(group, survey), base)
        except RefusedError:
            return False

    def _commit(
        self,
        incoming: Incoming,
        staging: Staging,
        missing: dict[int, str],
        may_bind: Callable[[str], bool],
        may_remove: Callable[[str], bool],
    ) -> set[str]:
        removed: dict[str, Absent] = dict(incoming.absent)
        for index, reason in missing.items():
            kinds, module = incoming.groups[index].kinds, incoming.modules[index]
            for name in names_of(incoming.groups[index].roots):
                kind = kinds.get(name, "object")
                removed.setdefault(name, Absent(kind, blocker=reason, module=module))
        removed = {n: a for n, a in removed.items() if n not in self.ns or may_remove(n)}
        deleted = [n for n in incoming.deleted if n not in self.ns or may_remove(n)]
        for name in [*removed, *deleted]:
            if name in self.ns:
                self.on_remove(name, self.ns[name])
        dropped = [*removed, *deleted]
        given_up.alone(self._inside(incoming.superseded))
        for loaded in staging.loaded.values():  # one that is not bound is dropped as a copy
            given_up.share(self._inside(loaded.names, loaded.names))
        bound = commit(staging, self.ns, dropped, lasting=self.lasting, may_bind=may_bind)
        self.ledger.differ_with_units((*removed, *deleted))
        arrived = {name for loaded in staging.loaded.values() for name in loaded.names}
        for name in (*arrived, *incoming.deleted):
            self.ledger.remote.pop(name, None)
        self.ledger.unagreed.difference_update(bound, incoming.deleted)
        others = {*arrived, *incoming.absent}.difference(bound, removed)
        self.ledger.unagreed |= others & self.ns.keys()  # bound anew here meanwhile
        self._withhold(incoming, arrived)
        if incoming.complete:
            # Of what is put away here the sender may not speak: it may be in doubt there.
            told = {*incoming.same, *incoming.withheld}
            known = removed.keys() | self.withheld.keys() | arrived | told
            for name in [n for n in self.ledger.remote if n not in known]:
                del self.ledger.remote[name]
        self.ledger.remote.update(removed)
        self.ledger.forget(incoming.gone)
        self._lend(staging, incoming, dropped)
        if incoming.state:
            self.state.apply(incoming.state)
        return set(bound)

    def _inside(self, names: Collection[str], values: Mapping[str, Any] | None = None) -> list[Any]:
        """Return what these names lead to, where a class with a ``__del__`` was met."""
        if not names or not given_up.is_needed():
            return []
        groups = self.survey_roots(names, (), values).groups
        return [obj for group in groups for obj in group.inner.values()]

    def _lend(self, staging: Staging, incoming: Incoming, dropped: Iterable[str]) -> None:
        """Hold what came with an id, beside the GPU (see ``loans``)."""
        if self.label != "a":
            return
        self.loans.forget(incoming.gone)
        self.loans.left(set(dropped))
        for loaded in staging.loaded.values():
            self.loans.arrived(loaded.names, staging.objects(loaded))

    def _leave_broken(self, incoming: Incoming, broken: Mapping[int, str]) -> tuple[str, ...]:
        """What a commit could not finish is newer on the other side, and absent here.

        So is whatever needs a part of it that others know, a class say; return those names.
        """
        dropped: set[str] = set()
        for index, reason in broken.items():
            roots = incoming.groups[index].roots
            absent = set(names_of(roots))
            if units := {root for root in roots if root.startswith("u:")}:
                survey = self.survey()
                near = {n: self.closure([n], survey, reads=False) for n in self.names()}
                dropped |= {n for n, reached in near.items() if not units.isdisjoint(reached)}
            absent |= dropped
            self.ledger.differ((*roots, *map(name_root, absent)))
            kinds = dict(incoming.groups[index].kinds)
            for name in dropped & self.ns.keys():
                kinds.setdefault(name, type_name(self.ns.pop(name)))
            for name in absent - self.ns.keys():
                self.ledger.remote[name] = Absent(kinds.get(name, "object"), blocker=reason)
        return tuple(sorted(dropped))

    def _withhold(self, incoming: Incoming, arrived: set[str]) -> None:
        """Put away what the other side has not looked at, and take back what it has."""
        for name in (*arrived, *incoming.absent, *incoming.deleted):
            self.withheld.pop(name, None)
        for name, absent in incoming.withheld.items():
            if name in self.ns:
                self.withheld[name] = self.ns.pop(name)
            self.ledger.remote[name] = absent
        for name in incoming.same:
            if name in self.withheld:
                self.ns.setdefault(name, self.withheld.pop(name))
                self.ledger.remote.pop(name, None)

    def _after_commit(self, staging: Staging, bound: set[str]) -> None:
        """Make the own baseline of what arrived, before any user code sees it.

        What the sender packed as this side would needs no look: its digest is the baseline.  Where
        that is likely only, and wrong, the group travels again: beside a thread, as a conflict.
        """
        arrived, bound = [], set(bound)
        for loaded in staging.loaded.values():
            group = loaded.arrived
            likely = group.alike == Alike.LIKELY and self.label == "h" and not self.runs_beside()
            if (likely or group.alike == Alike.SURELY) and bound.issuperset(loaded.names):
                size = len(group.inband) + sum(len(b) for b in group.buffers if b is not None)
                versions = loaded.stage.versions
                self.ledger.agree_alike(group.roots, group.digest, versions, size, group.chunks)
                bound -= loaded.names.keys()
            else:
                arrived.append(loaded)
        given_up.share(self._inside([n for each in staging.loaded.values() for n in each.names]))
        roots = [root for loaded in arrived for root in loaded.arrived.roots]
        oids = [root[2:] for root in roots if root.startswith("u:")]
        self.ledger.peer_units.update(oids)
        self.ledger.peer_units.update(staging.units)
        survey = self.survey_roots(sorted(bound), oids)
        for loaded in arrived:
            self.kept.hold(loaded.names, loaded.contents, survey, self.aside)
            roots = [r for r in loaded.arrived.roots if not r.startswith("n:") or r[2:] in bound]
            parts = {id(g): g for r in roots if (g := survey.by_root.get(r)) is not None}
            try:
                if parts:
                    self.ledger.agree(self.pack(merge(parts.values()), survey))
            except RefusedError:
                self.ledger.differ(loaded.arrived.roots)
                self.ledger.unagreed.update(names_of(roots))


def _for_want_of(
    incoming: Incoming, failed: Mapping[int, LoadError], deferred: Iterable[int]
) -> tuple[int, ...]:
    """Return which groups wait, as their code misses a module that is not imported here yet."""
    names = {name for index in deferred for name in names_of(incoming.groups[index].roots)}
    return tuple(
        index
        for index, error in failed.items()
        if error.missing in names and not incoming.required[index]
    )
