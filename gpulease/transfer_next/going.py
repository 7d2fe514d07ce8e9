"""Which of what changed travels to the other side."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
