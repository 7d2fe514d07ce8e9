"""Which of what changed travels to the other side, and what waits here for another one."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gpulease.sides.looks import name_of_type
from gpulease.sides.names.analysis import ANYWHERE

from . import classes, pieces
from .api import Absent, PackedComponent, Parcel, Receiver
from .groups import Component
from .loader import Staged
from .met import Met
from .pickler import Pickler
from .survey import Survey
from .tables import Counterparts


@dataclass
class Going:
    """Which of what changed travels in one parcel."""

    #: Components that were asked for, None for all.
    wanted: Collection[frozenset[str]] | None
    #: Components of so many bytes travel without that.
    small: int
    receiver: Receiver | None
    #: By id, digests of the pieces of large memory that both sides have.
    pieces: Mapping[str, bytes]
    #: By ``id`` of objects that something outside holds here, their pins.
    pin_of: dict[int, str] = field(default_factory=dict)
    #: Of what variables are.
    kinds: dict[str, type] = field(default_factory=dict)
    #: Bytes that are in it.
    taken: int = 0
    #: Ids of the classes that what both sides have then is of.
    used: set[str] = field(default_factory=set)

    def in_order(self, components: Collection[Component]) -> Iterator[Component]:
        """Yield components, classes after what they are used by: the other side forgets the rest.

        Of these no name says that they are away, so that they are not agreed on.
        """
        classes = {oid: each for each in components if (oid := _class_of(each))}
        yield from (each for each in components if not _class_of(each))
        while fresh := classes.keys() & self.used:
            yield from map(classes.pop, sorted(fresh))

    def takes(self, component: Component) -> bool:
        """Say whether a component travels, as far as the receiver has room for it."""
        size = component.nbytes
        # No name says that a class or a module's part is away, nor what something held there is
        # now that no name leads to it here: these travel.
        if not any(root[0] in "cm" for root in component.roots) and component.names:
            if not is_due(component, self.wanted, self.small):
                return False
            if self.receiver is not None and self.taken + size > self.receiver.room:
                return False
        self.taken += size
        return True

    def absent(self, component: Component, reason: str, *, can_come: bool) -> dict[str, Absent]:
        """Return what the receiver is to know of a component that does not travel."""
        size = None if component.error else component.nbytes
        kinds = {name: self.kinds.get(name, type(None)) for name in component.names}
        return {n: Absent(reason, can_come, name_of_type(k), size) for n, k in kinds.items()}

    def known(self, oid: str) -> bytes | None:
        """Return the digests of the pieces of large memory that the receiver has."""
        if self.receiver is not None and oid not in self.receiver.holds:
            return None
        return self.pieces.get(oid)

    def cut(self, component: Component) -> tuple[tuple[Any, ...], dict[int, Any], list[Any]]:
        """Return what a packed component says of its large memory, and what of that travels."""
        memories, forms, parts = [], {}, list[Any]()
        for oid, found in component.large.items():
            known = self.known(oid)
            runs = pieces.changed(component.pieces[oid], known)
            if known is None and (form := pieces.form(found)) is not None:
                forms[len(component.buffers) + len(parts)] = form
            memories.append((oid, pieces.size(found), runs))
            parts += map(pickle.PickleBuffer, pieces.cut(found, runs))
        return tuple(memories), forms, parts

    def kept(self, component: Component) -> dict[str, bytes]:
        """Return those that it has aside for the day when a component is needed."""
        found = {oid: self.known(oid) for oid in component.pieces} if self.receiver else {}
        return {oid: digests for oid, digests in found.items() if digests is not None}


def is_due(component: Component, wanted: Collection[frozenset[str]] | None, small: int) -> bool:
    """Say whether a component was asked for, or travels without that."""
    return wanted is None or component.roots in wanted or component.nbytes <= small


def _class_of(component: Component) -> str:
    """Return the id of the class that a component is and nothing else, "" for another one."""
    (root,) = component.roots if len(component.roots) == 1 else ("",)
    return root[2:] if root[:1] == "c" else ""


def shells(oids: Collection[str], bound: Counterparts, met: Met) -> list[tuple[str, bytes]]:
    """Return the shells of these classes, bases first: the other side may have lost them."""
    out: dict[str, bytes] = {}
    for oid in sorted(oids):
        _put_shell(oid, bound, met, out)
    return list(out.items())


def _put_shell(oid: str, bound: Counterparts, met: Met, out: dict[str, bytes]) -> None:
    if oid in out:
        return
    cls = bound.get(oid)
    for base in (type(cls), *cls.__bases__):
        known = bound.find(base)
        if known is not None:
            _put_shell(known, bound, met, out)
    file = io.BytesIO()
    Pickler(file, [], met).dump(classes.shell_of(cls))
    out[oid] = file.getvalue()


#: A component that is not larger is looked at always.  Counted, never timed.  What its class or
#: we say how to pack (a figure's parts, an estimator's) takes ten times as long, and counts so.
OBJECTS = 10_000
BYTES = 16 << 20


@dataclass(frozen=True)
class Leads:
    """Where a component of the last look led to: a cell may have run what it then deleted."""

    roots: frozenset[str]
    classes: frozenset[str]
    reads: set[str] | None


#: What leads somewhere: what was here, or is.
T = TypeVar("T", Leads, Component)


@dataclass(frozen=True)
class Resting(Leads):
    """What is known of a large component from the last look.

    One that only this side has, and keeps, has no digest: nothing is compared with it.
    """

    digest: bytes
    pieces: dict[str, bytes]
    size: int

    def component(self) -> Component:
        """Return it as a component that has met nothing."""
        found = Component(self.roots, classes=self.classes)
        found.digest, found.pieces = self.digest, self.pieces
        found.rests, found.known_reads, found.known_size = True, self.reads, self.size
        return found


def can_rest(component: Component, held: Collection[object]) -> bool:
    """Say whether names alone lead to a component, which is large."""
    if component.error is not None or held or any(root[0] != "n" for root in component.roots):
        return False
    objects = OBJECTS if component.is_plain() else OBJECTS // 10
    return len(component.objects) > objects or component.nbytes > BYTES


def rest(component: Component, *, is_compared: bool) -> Resting:
    """Return what is known of a component that can rest."""
    digest, parts = b"", dict.fromkeys(component.large, b"")
    if is_compared:
        digest, parts = component.digest, component.pieces
    return Resting(
        component.roots, component.classes, component.reads(), digest, parts, component.nbytes
    )


def arrived(packed: PackedComponent, parcel: Parcel) -> Resting:
    """Return what is known of data that came and that both sides pack alike: it reads nothing."""
    key = frozenset(packed.roots)
    parts = {oid: parcel.memories[oid] for oid, _, _ in packed.memories}
    return Resting(key, parcel.classes[key], set(), parcel.digests[key], parts, packed.rests)


def leads(components: Iterable[Component]) -> dict[str, Leads]:
    """Return by root where these components lead to."""
    found = (Leads(each.roots, each.classes, _may_have_read(each)) for each in components)
    return {root: each for each in found for root in each.roots}


def _may_have_read(component: Component) -> set[str] | None:
    reads = component.reads() if component.error is None else None
    return None if reads is None or ANYWHERE & reads else reads


def led_to(by_root: Mapping[str, T], roots: Iterable[str],
           reads: Callable[[T], Collection[str] | None]) -> set[str]:  # fmt: skip
    """Return these roots with all that they lead to: their classes, and what their code reads."""
    queue = list(roots)
    found: set[str] = set()
    while queue:
        root = queue.pop()
        if root in found:
            continue
        found.add(root)
        if (each := by_root.get(root)) is not None:
            found |= each.roots
            queue += ["c:" + oid for oid in each.classes]
            names = reads(each)
            queue += by_root if names is None else ["n:" + name for name in names]
    return found


def closure(components: Collection[Component], roots: Iterable[str]) -> set[frozenset[str]]:
    """Return the components that these lead to."""
    by_root = {root: each for each in components for root in each.roots}
    found = led_to(by_root, roots, Component.reads)
    return {by_root[root].roots for root in found & by_root.keys()}


def follow(names: set[str], known: set[str], rest: Mapping[str, Resting],
           look: Callable[[set[str]], Survey]) -> set[str] | None:  # fmt: skip
    """Return the names with all that code which they lead to reads; None where that is anything.

    Of the ``known`` ones those that ``rest`` are not looked at.
    """
    found, asked = set(names), set[str]()
    while fresh := (found & known) - asked:
        asked |= fresh
        components = [rest[name].component() for name in fresh & rest.keys()]
        if looked := {"n:" + name for name in asked - rest.keys()}:
            components += look(looked).components
        for component in components:
            reads = component.reads()
            if reads is None:
                return None
            found |= reads
    return found


@dataclass(frozen=True)
class Sealed:
    """A component that this side cannot open."""

    packed: PackedComponent
    #: Of the side that has packed it.
    digest: bytes
    #: What it refers to, kept alive, by id.
    classes: Mapping[str, type]
    reason: str
    #: Its variables that were not bound again or deleted here.
    names: set[str]


class SealedHere(dict[frozenset[str], Sealed]):
    """What this side cannot open, by roots: it goes to the next peer as it came."""

    def away(self) -> dict[str, Absent]:
        """Return the variables in it, which are not bound here."""
        return {
            name: Absent(each.reason, can_come=False, is_sealed=True)
            for each in self.values()
            for name in each.names
        }

    def classes(self) -> set[str]:
        """Return the ids of the classes that it is of."""
        return {oid for each in self.values() for oid in each.classes}

    def discard(self, name: str) -> None:
        """A variable was bound again or deleted here."""
        for sealed in self.values():
            sealed.names.discard(name)

    def forget_nameless(self) -> None:
        """Forget what no variable of this side is in."""
        for key in [key for key, each in self.items() if not each.names]:
            del self[key]

    def pass_on(self, parcel: Parcel, base: Collection[frozenset[str]], met: set[str]) -> None:
        """Put into a parcel what a new peer has not; the one that sent it has it."""
        for key, sealed in self.items():
            parcel.digests[key] = sealed.digest
            if key not in base:
                parcel.components.insert(0, sealed.packed)
                parcel.classes[key] = frozenset(sealed.classes)
                met |= sealed.classes.keys()

    def keep(self, staged: Staged, classes_here: Counterparts) -> None:
        """Keep what came and could not be opened."""
        parcel = staged.parcel
        if parcel.names is not None:  # what has changed or is gone there is not this any more
            known = parcel.digests.keys() - {frozenset(each.roots) for each in parcel.components}
            for key in self.keys() - known:
                del self[key]
        for packed, reason in staged.sealed:
            key = frozenset(packed.roots)
            kept = {oid: classes_here.get(oid) for oid in parcel.classes[key]}
            names = set(packed.names)
            if parcel.names is not None:
                names &= {*parcel.names, *parcel.yours}
            self[key] = Sealed(packed, parcel.digests[key], kept, reason, names)
