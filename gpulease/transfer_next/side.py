"""One side's namespace: what changed against what both have, and one commit for what comes."""

from __future__ import annotations

import gc
import io
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpulease.sides.undisturbed import undisturbed
from gpulease.transfer.references import references
from gpulease.transfer.values.names import path
from gpulease.transfer.values.stays import stayed

from . import classes, commit, holders, in_place, loader, state
from .engine import Away, PackedComponent, Parcel
from .loader import Staged
from .pickler import Met, Pickler
from .roots import Hidden, Roots, meant
from .survey import Component, Survey
from .tables import Counterparts


@dataclass(frozen=True)
class Sealed:
    """A component that this side cannot open."""

    packed: PackedComponent
    #: Of the side that has packed it.
    digest: bytes
    #: What it refers to, kept alive, by id.
    classes: Mapping[str, type]
    reason: str


class Side:
    """The second engine (see ``engine.Engine``); not thread safe."""

    def __init__(self, label: str, namespace: dict[str, Any], hidden: Hidden = (),
                 results: dict[int, Any] | None = None) -> None:  # fmt: skip
        self.label = label
        self.ns = namespace
        self._roots = Roots(namespace, hidden, {} if results is None else results)
        self._classes = Counterparts()
        self._others = Counterparts()
        self._stays = Counterparts()
        #: What this side cannot open: it goes to the next peer as it came.
        self._sealed: dict[frozenset[str], Sealed] = {}
        self.forget_peer()

    def forget_peer(self, holds: Mapping[str, Away] | None = None) -> None:
        """The other side is new and holds nothing but these."""
        token = secrets.token_hex(4)
        stayed.let_go([each for each in self._stays.values() if type(each) is stayed.Stayed])
        self._stays = Counterparts(prefix=self.label + token, keeps=True)
        #: What both sides have: digest by roots.
        self._base: dict[frozenset[str], bytes] = {}
        #: Classes of which the other side has the shell.
        self._theirs: set[str] = set()
        #: My objects that something outside holds here, and my counterparts of the other side's.
        self._pins: dict[str, Any] = {}
        self._counterparts: dict[str, Any] = {}
        self._away = {**(holds or {}), **self._away_as_sealed()}
        #: Marks of components of which nothing outside held anything.
        self._unheld: dict[frozenset[str], Any] = {}
        self._pin_prefix, self._pin_count = self.label + token, 0
        #: Bytes of each component at the last look, by roots.
        self.sizes: dict[frozenset[str], int] = {}

    # ---- looking

    def names(self) -> list[str]:
        """Return the person's names here, in their order."""
        return list(self._roots.values())

    def away(self) -> Mapping[str, Away]:
        """Return the names that are not bound here, and why."""
        for name in [name for name in self._away if name in self.ns]:
            del self._away[name]  # bound here again: this one counts
        return self._away

    def lacking(self, names: Collection[str]) -> set[str]:
        """Return which of the names that these lead to are not bound here ("*": all of them)."""
        if not self.away():
            return set()
        if "*" in names:
            return set(self._away)
        found = meant(names, self._away)
        queue = list(found)
        by_name = {name: each for each in self._survey().components for name in each.names}
        while queue:
            component = by_name.get(queue.pop())
            reads = set() if component is None else component.reads()
            if reads is None:
                return set(self._away)
            queue += reads - found
            found |= reads
        return found & self._away.keys()

    def changed(self) -> list[frozenset[str]]:
        """Return the roots of each component that the other side lacks as it is here."""
        with _collector_waits():
            survey = self._survey()
            return [_plain(each.roots) for each in survey.components if self._differs(each)]

    @property
    def agreed(self) -> Collection[frozenset[str]]:
        """Return the roots of each component that both sides have."""
        return self._base.keys()

    def _known(self) -> dict[str, Any]:
        builtins = self.ns.get("__builtins__", __builtins__)
        builtins = builtins if isinstance(builtins, dict) else vars(builtins)
        return {"namespace": self.ns, "builtins": builtins}

    def _survey(self) -> Survey:
        met = Met(self.label, self.ns, self._classes, self._others, self._stays)
        values = {"n:" + name: value for name, value in self._roots.values().items()}
        for sealed in self._sealed.values():
            met.met_classes |= sealed.classes.keys()
        survey = Survey(met, values, self._known())
        survey.run({"p:" + pin: obj for pin, obj in self._counterparts.items()})
        self.sizes = {_plain(each.roots): each.nbytes for each in survey.components}
        return survey

    def _differs(self, component: Component) -> bool:
        key = _plain(component.roots)
        return component.error is None and self._base.get(key) != component.digest

    # ---- going

    def pack(
        self, needed: Collection[str] | None = None, *, hand_over: bool = True, small: int = 0
    ) -> Parcel:
        """Pack what changed, or what ``needed`` leads to, and what is ``small``."""
        with _collector_waits():
            self.away()
            for key in [key for key, each in self._sealed.items() if not self._is_away(each)]:
                del self._sealed[key]
            survey = self._survey()
            held = self._held(survey)
            return self._pack(survey, held, needed, hand_over, small)

    def _pack(self, survey: Survey, held: dict[frozenset[str], list[Any]],
              needed: Collection[str] | None, hand_over: bool, small: int) -> Parcel:  # fmt: skip
        names = self.names()
        wanted = None if needed is None else _closure(survey.components, meant(needed, names))
        parcel = Parcel(
            [], [], names if hand_over else None, {}, frozenset(self._away),
            frozenset(), state.read() if hand_over else {},
        )  # fmt: skip
        refused = _spread_refusals(survey.components, self._roots.values())
        met: set[str] = set()
        pin_of = {id(obj): pin for pin, obj in self._pins.items()}
        for component in survey.components:
            key = _plain(component.roots)
            reason = refused.get(component.roots)
            if reason is not None:
                parcel.away.update(self._stay(component, reason, can_come=False))
                continue
            objects = [obj for obj in held[component.roots] if in_place.can_be_filled(obj)]
            fresh = [obj for obj in objects if id(obj) not in pin_of]
            is_wanted = (
                wanted is None
                or component.roots in wanted
                or (hand_over and component.nbytes <= small)
            )
            if self._base.get(key) == component.digest and not fresh:
                parcel.digests[key] = component.digest
            elif is_wanted:
                for obj in fresh:
                    self._pin_count += 1
                    pin = pin_of[id(obj)] = f"{self._pin_prefix}.{self._pin_count}"
                    self._pins[pin] = obj
                parcel.kept += [
                    type(obj).__name__
                    for obj in held[component.roots]
                    if not in_place.can_be_filled(obj)
                ]
                parcel.components.append(self._ship(survey, component, objects, pin_of))
                parcel.digests[key] = component.digest
                parcel.classes[key] = component.classes
                met |= component.classes | {r[2:] for r in component.roots if r[0] == "c"}
            else:
                parcel.away.update(self._stay(component, "it is not needed yet", can_come=True))
        self._pack_sealed(parcel, met)
        kept = {id(each) for each in self._stays.values() if type(each) is not stayed.Stayed}
        values = self._roots.values().items()
        parcel.stays = frozenset(name for name, value in values if id(value) in kept)
        parcel.shells = self._shells(survey.met, met)
        parcel.pins = frozenset(self._pins)
        return parcel

    def _stay(self, component: Component, reason: str, *, can_come: bool) -> dict[str, Away]:
        values = self._roots.values()
        size = None if component.error else component.nbytes
        return {
            name: Away(reason, can_come, type(values.get(name)).__name__, size)
            for name in component.names
        }

    def _is_away(self, sealed: Sealed) -> bool:
        return any(name in self._away for name in sealed.packed.names)

    def _pack_sealed(self, parcel: Parcel, met: set[str]) -> None:
        """Pass on to a new peer what this side cannot open; the one that sent it has it."""
        for key, sealed in self._sealed.items():
            parcel.digests[key] = sealed.digest
            if key not in self._base:
                parcel.yours -= set(sealed.packed.names)
                parcel.components.insert(0, sealed.packed)
                met |= sealed.classes.keys()

    def _ship(self, survey: Survey, component: Component, objects: list[Any],
              pin_of: dict[int, str]) -> PackedComponent:  # fmt: skip
        pinned = {pin: obj for pin, obj in self._counterparts.items() if id(obj) in component.ids}
        if pinned:
            component = survey.pack(component.roots, pinned)
            if component.error is not None:
                raise component.error
        index = component.index
        return PackedComponent(
            component.order, component.stream, component.buffers,
            [(index[id(obj)], pin_of[id(obj)]) for obj in objects if id(obj) in index],
            component.filled, component.deep,
        )  # fmt: skip

    def _shells(self, met: Met, oids: set[str]) -> list[tuple[str, bytes]]:
        """Return the shells that the other side lacks, bases first."""
        out: dict[str, bytes] = {}
        for oid in sorted(oids):
            self._put_shell(met, oid, out)
        return list(out.items())

    def _put_shell(self, met: Met, oid: str, out: dict[str, bytes]) -> None:
        if oid in out or oid in self._theirs:
            return
        cls = self._classes.get(oid)
        for base in (type(cls), *cls.__bases__):
            known = self._classes.find(base)
            if known is not None:
                self._put_shell(met, known, out)
        file = io.BytesIO()
        Pickler(file, [], met).dump(classes.shell_of(cls))
        out[oid] = file.getvalue()

    def _held(self, survey: Survey) -> dict[frozenset[str], list[Any]]:
        """Return for each component what something outside holds of it."""
        # Only numbers are kept: a list of the objects would hold them.
        known: Counter[int] = Counter(map(id, self._roots.held()))
        for table in (survey.values, self._pins, self._counterparts):
            known.update(map(id, table.values()))
        for held_here in (self._stays.values(), self._others.values(), survey.met.memory.holds()):
            known.update(map(id, held_here))
        out = {}
        for component in survey.components:
            classes_of = [root[2:] for root in component.roots if root[0] == "c"]
            spaces = Counter(
                id(value) for oid in classes_of for value in vars(self._classes.get(oid)).values()
            )
            out[component.roots] = (
                [] if component.error else holders.held(component, known + spaces, self._unheld)
            )
        return out

    def acknowledge(self, parcel: Parcel, *, surely: bool = True) -> None:
        """The other side has committed what ``pack`` gave, or, not ``surely``, may have."""
        if not surely:
            for component in parcel.components:
                self._base.pop(_plain(frozenset(component.roots)), None)
            return
        self._theirs |= {oid for oid, _ in parcel.shells}
        if parcel.names is None:
            self._base.update(parcel.digests)
        else:
            self._base = dict(parcel.digests)

    # ---- coming

    def stage(self, parcel: Parcel) -> Staged:
        """Load a parcel beside what is here."""
        here = loader.Here(
            self.label, self.ns, self._known(), (self._classes, self._others, self._stays),
            self._pins,
        )  # fmt: skip
        return loader.stage(parcel, here, self._classes)

    def abandon(self, staged: Staged) -> None:
        """Drop what was loaded."""
        staged.undo.run()

    def commit(self, staged: Staged) -> None:
        """Put what was loaded in place."""
        with undisturbed(), _collector_waits():
            commit.apply(staged, self._roots, self._pins)
            self._after(staged)

    def _after(self, staged: Staged) -> None:
        parcel = staged.parcel
        self._theirs |= {oid for oid, _ in parcel.shells}
        if parcel.names is not None:
            self._away = dict(parcel.away)  # what the sender deleted since is away no more
        else:
            for name in list(self._away):
                if "n:" + name in staged.values:
                    del self._away[name]
                elif name in parcel.away:
                    self._away[name] = parcel.away[name]
        if parcel.names is not None:
            self._counterparts = {
                pin: obj for pin, obj in self._counterparts.items() if pin in parcel.pins
            }
        self._counterparts.update(staged.counterparts)
        arrived = [_plain(frozenset(each.roots)) for each in parcel.components]
        self._keep_sealed(staged)
        staged.values.clear()
        staged.contents.clear()
        staged.counterparts.clear()
        known = set(parcel.digests)
        self._base = {
            key: digest
            for key, digest in self._base.items()
            if (parcel.names is None or key in known) and key not in arrived
        }
        self._agree(arrived)

    def _keep_sealed(self, staged: Staged) -> None:
        parcel = staged.parcel
        arrived = {frozenset(each.roots) for each in parcel.components}
        if parcel.names is not None:  # what has changed or is gone there is not this any more
            known = parcel.digests.keys() - arrived
            self._sealed = {key: each for key, each in self._sealed.items() if key in known}
        for packed, reason in staged.sealed:
            key = frozenset(packed.roots)
            kept = {oid: self._classes.get(oid) for oid in parcel.classes[key]}
            self._sealed[key] = Sealed(packed, parcel.digests[key], kept, reason)
        self._away |= self._away_as_sealed()

    def _away_as_sealed(self) -> dict[str, Away]:
        kept = self._sealed.values()
        return {name: Away(each.reason, False) for each in kept for name in each.packed.names}

    def _agree(self, arrived: list[frozenset[str]]) -> None:
        """Make what arrived the baseline, and give up pins that nothing holds any more."""
        survey = self._survey()
        by_key = {_plain(each.roots): each for each in survey.components}
        for key in arrived:
            if key in by_key and by_key[key].error is None:
                self._base[key] = by_key[key].digest
        held = {id(obj) for objects in self._held(survey).values() for obj in objects}
        reached = set().union(*(each.ids for each in survey.components))
        del survey, by_key
        unheld = references(self._pins)
        self._pins = {
            pin: obj
            for pin, obj in self._pins.items()
            if (id(obj) in held if id(obj) in reached else unheld[pin] > 0)
        }
        for table in (self._classes, self._others, self._stays):
            table.prune()


def _plain(roots: frozenset[str]) -> frozenset[str]:
    """Return a component's roots without pins, which only one side has."""
    return frozenset(root for root in roots if root[0] != "p")


def _closure(components: list[Component], needed: Collection[str]) -> set[frozenset[str]]:
    """Return the components that these names lead to: their classes, and what their code reads."""
    by_root = {root: each for each in components for root in each.roots}
    queue = ["n:" + name for name in needed]
    found: set[frozenset[str]] = set()
    while queue:
        component = by_root.get(queue.pop())
        if component is None or component.roots in found:
            continue
        found.add(component.roots)
        queue += ["c:" + oid for oid in component.classes]
        reads = component.reads()
        queue += list(by_root) if reads is None else ["n:" + name for name in reads]
    return found


def _spread_refusals(components: list[Component],
                     space: Mapping[str, Any]) -> dict[frozenset[str], str]:  # fmt: skip
    """Return why components stay: what is refused in them, or in a class that they are of."""
    refused = {each.roots: _located(each, space) for each in components if each.error is not None}
    bad = {root[2:]: why for roots, why in refused.items() for root in roots if root[0] == "c"}
    for each in components:
        for oid in each.classes & bad.keys():
            refused.setdefault(each.roots, bad[oid])
    return refused


def _located(component: Component, space: Mapping[str, Any]) -> str:
    """Return what is refused in a component, with the way to it."""
    error = component.error
    assert error is not None
    values = {name: space[name] for name in component.names if name in space}
    return path.located(error.kind, values, error.blocker)


@contextmanager
def _collector_waits() -> Iterator[None]:
    """Keep the collector from running: what it frees would give its address to another object."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
