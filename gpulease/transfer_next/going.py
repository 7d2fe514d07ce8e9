"""Which of what changed travels to the other side."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from .engine import Receiver
from .survey import Component


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
        # No name says that a class or a module's part is away: these travel.
        if not any(root[0] in "cm" for root in component.roots):
            is_asked = self.wanted is None or component.roots in self.wanted
            if not is_asked and size > self.small:
                return False
            if self.receiver is not None and self.taken + size > self.receiver.room:
                return False
        self.taken += size
        return True

    def known(self, oid: str) -> bytes | None:
        """Return the digests of the pieces of large memory that the receiver has."""
        if self.receiver is not None and oid not in self.receiver.holds:
            return None
        return self.pieces.get(oid)

    def kept(self, component: Component) -> dict[str, bytes]:
        """Return those that it has aside for the day when a component is needed."""
        found = {oid: self.known(oid) for oid in component.large} if self.receiver else {}
        return {oid: digests for oid, digests in found.items() if digests is not None}


def _class_of(component: Component) -> str:
    """Return the id of the class that a component is and nothing else, "" for another one."""
    (root,) = component.roots if len(component.roots) == 1 else ("",)
    return root[2:] if root[:1] == "c" else ""
