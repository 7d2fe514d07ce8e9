"""What a framework provides, and what it is given while a group is packed and loaded."""

from __future__ import annotations

import bisect
import pickle
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from gpulease.transfer.registry import Registry
from gpulease.transfer_next.attributes import each_set, new, set_attributes

__all__ = ["each_set", "new", "set_attributes"]  # passed on

F = TypeVar("F", bound=Callable[..., Any])


class Inside(NamedTuple):
    """What a claimed object reaches: objects to walk, and memory as (first, past last) address."""

    values: list[Any]
    spans: list[tuple[int, int]] = []  # noqa: RUF012 - nobody writes to it


class Framework(Protocol):
    """One framework.  Every method runs under the side's transfer lock, between cells."""

    def claims(self, kind: type) -> bool:
        """Say whether objects of exactly this type are this framework's; asked once a type."""

    def is_imported(self, obj: Any) -> bool:
        """Say whether a module has this very object, by whose name it is pickled.

        Then nothing is asked of what it reaches, and values that hold it share nothing.
        """

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:
        """Return what ``obj`` reaches, in place of the collector's answer.

        ``scratch`` is the framework's own for one walk.
        """

    def inside_all(self, objects: list[Any], scratch: dict[Any, Any]) -> Inside:
        """Return what these objects reach together: what the walk asks."""

    def prepare(self, claimed: list[Any], packing: Packing) -> None:
        """Look at all claimed objects of a group, before any of them is pickled."""

    def reduce(self, obj: Any, packing: Packing) -> Any:
        """Return a pickle reduction of ``obj`` (or NotImplemented, for the usual one).

        Raises RefusedError with what cannot move, in words.  What the reduction calls may be
        ``staged``, and so meet the objects that the receiver has already.
        """

    def content(self, obj: Any, packing: Packing) -> Any:
        """Return what is put into ``obj`` at the commit, None for nothing; it may refer to all."""

    def contents(self, objects: list[Any], packing: Packing) -> list[tuple[Any, Any]]:
        """Return the objects that something is put into, each with it: what is asked."""

    def apply(self, pairs: list[tuple[Any, Any]], stage: Stage) -> None:
        """Commit: put contents into objects, and carry out what loading planned.

        Runs none of the user's code.
        """

    def entry(self, cls: type) -> Any:
        """Return what the framework keeps about a notebook's class beside it, None for nothing.

        It is pickled with the class, so it may hold functions of the notebook.
        """

    def enter(self, cls: type, entry: Any) -> None:
        """Commit: have the framework keep the same about this side's class.

        Runs none of the user's code; comes again with every new content of the class.
        """


class Aside:
    """A base for frameworks whose objects need nothing, or less than all of it."""

    def claims(self, kind: type) -> bool:  # noqa: ARG002
        """Claim nothing."""
        return False

    def is_imported(self, obj: Any) -> bool:  # noqa: ARG002
        """Take every object for a notebook's own."""
        return False

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        """Reach nothing."""
        return Inside([])

    def inside_all(self, objects: list[Any], scratch: dict[Any, Any]) -> Inside:
        """Return what each reaches, one after the other."""
        found = [self.inside(obj, scratch) for obj in objects]
        values = [value for each in found for value in each.values]
        return Inside(values, [span for each in found for span in each.spans])

    def prepare(self, claimed: list[Any], packing: Packing) -> None:
        """Look at nothing."""

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        """Leave it to the object's own way."""
        return NotImplemented

    def content(self, obj: Any, packing: Packing) -> Any:
        """Put nothing into objects that are there."""

    def contents(self, objects: list[Any], packing: Packing) -> list[tuple[Any, Any]]:
        """Return what is put into each, one after the other."""
        found = ((obj, self.content(obj, packing)) for obj in objects)
        return [(obj, content) for obj, content in found if content is not None]

    def apply(self, pairs: list[tuple[Any, Any]], stage: Stage) -> None:
        """Do nothing at the commit."""

    def entry(self, cls: type) -> Any:
        """Keep nothing about a class."""

    def enter(self, cls: type, entry: Any) -> None:
        """Enter nothing."""


@runtime_checkable
class OnDevice(Protocol):
    """What a framework may have beside: it knows what lies on a device."""

    def use_of(self, obj: Any) -> dict[int, int]:
        """Return the bytes that a claimed object has on a device, by their address."""

    def used(self, error: BaseException) -> int | None:
        """Return all bytes in use where ``error`` says that no room is left there, else None."""


@runtime_checkable
class Keeping(Protocol):
    """What a framework may have beside: some of its objects are known by an id on both sides."""

    def keeps(self, obj: Any) -> bool:
        """Say whether the other side's very object becomes what a claimed object is."""


@dataclass
class Packing:
    """One group on its way into bytes: what a framework's reductions may ask."""

    registry: Registry
    #: Whether large values are left out: the receiver wants to know what there is, and how large.
    structure: bool = False
    #: The group's numpy arrays.
    arrays: list[Any] = field(default_factory=list)
    #: ``id`` of each claimed object.  Others are made by a value's own way of being pickled.
    known: set[int] = field(default_factory=set)
    #: Names of the group's values by ``id``, for messages.
    names: dict[int, str] = field(default_factory=dict)
    group: tuple[str, ...] = ()
    #: The framework's own, for one pass.
    scratch: dict[Any, Any] = field(default_factory=dict)
    #: What the framework noted in the walk that found the group (its ``scratch`` there).
    walked: dict[Any, Any] = field(default_factory=dict)
    #: Reductions that are known already, by ``id`` of a claimed object: ``reduce`` is not asked.
    ready: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    #: Object id to a number that goes up with every write; a part of the group's digest.
    versions: dict[str, int] = field(default_factory=dict)
    _memory: dict[int, str] = field(default_factory=dict)
    #: Memory that arrays share with claimed objects, in order: first and one past the last address,
    #: what stands for it in the pickle, and the loading function of an array over it.
    blocks: list[tuple[int, int, Any, Callable[..., Any] | None]] = field(default_factory=list)

    def oid(self, obj: Any) -> str:
        """Return the id under which both sides know ``obj`` (kept by a weak reference)."""
        return self.registry.oid(obj)

    def lasting_oid(self, obj: Any) -> str:
        """Return the same, or '' for an object that the walk did not meet: it is new each time."""
        return self.registry.oid(obj) if id(obj) in self.known else ""

    def lasting_oids(self, objects: list[Any]) -> list[str]:
        """Return ``lasting_oid`` of each, of thousands in few steps."""
        if self.known.issuperset(map(id, objects)):
            return self.registry.oids(objects)
        return [self.lasting_oid(obj) for obj in objects]

    def memory(self, oid: str, data: Any) -> pickle.PickleBuffer:
        """Return ``data`` for a reduction; it is not sent where the receiver holds it already.

        Then the loading function gets None in its place.
        """
        buffer = pickle.PickleBuffer(data)
        self._memory[id(buffer)] = oid
        self.scratch.setdefault("buffers", []).append(buffer)  # its id is this one's meanwhile
        return buffer

    def owner(self, buffer: pickle.PickleBuffer) -> str | None:
        """Return the object id that ``memory`` was told for a buffer."""
        return self._memory.get(id(buffer))

    def block(self, address: int) -> Any:
        """Return the shared memory that an address lies in, or None."""
        at = bisect.bisect_right(self.blocks, address, key=lambda block: block[0]) - 1
        return self.blocks[at] if at >= 0 and address < self.blocks[at][1] else None

    def release(self) -> None:
        """Let go of every value, collector or not."""
        self.scratch.clear()
        self.ready.clear()
        self.blocks.clear()

    def label(self, *objects: Any) -> str:
        """Return the names of these values, for a message; the group's where they have none."""
        own = [self.names[id(obj)] for obj in objects if id(obj) in self.names]
        return ", ".join((own or [f"a value in {name}" for name in self.group])[:3])


@dataclass
class Stage:
    """One group being loaded: how staged functions meet what is here already."""

    registry: Registry
    lack: Callable[[str], Exception]
    #: Object ids whose version rose on the other side since both were last the same.
    risen: Collection[str] = ()
    #: The framework's own, from loading to the commit.
    scratch: dict[Any, Any] = field(default_factory=dict)
    #: What ``Packing.versions`` of a look after the commit would say; entered at the commit.
    versions: dict[str, int] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)

    def live(self, oid: str) -> Any:
        """Return the object of this side, or one made in this very stage; None if neither is."""
        if not oid:
            return None
        found = self.made.get(oid)
        return self.registry.get(oid) if found is None else found

    def lives(self, oids: list[str]) -> list[Any]:
        """Return ``live`` of each, of thousands in few steps where none is known."""
        if self.made.keys().isdisjoint(oids) and not self.registry.knows_any(oids):
            return [None] * len(oids)
        return list(map(self.live, oids))

    def make(self, oid: str, obj: Any) -> Any:
        """Remember that ``oid`` is ``obj`` from the commit on; return it."""
        if oid:
            self.made[oid] = obj
        return obj

    def adopt(self) -> None:
        """Enter what was made into the registry."""
        for oid, obj in self.made.items():
            self.registry.bind(oid, obj)


def staged(function: F) -> F:
    """Mark a loading function that gets the ``Stage`` before its pickled arguments."""
    function.gpulease_staged = True  # type: ignore[attr-defined]
    return function
