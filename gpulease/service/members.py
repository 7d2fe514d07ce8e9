"""The supervisors of a lease's further nodes, until all are there and know the first one.

Owns which of them said hello and where each hears what is launched.  The first one learns their
addresses, and they its key, so that what runs on them is sent from one to the other and not through
here.  Refuses to know the first one's channel (``links``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from gpulease.policy.model import Lease
from gpulease.protocol import NodeAddress, ToSupervisor
from gpulease.protocol.reports import FromSupervisor


class Wire(Protocol):
    """A connected supervisor."""

    def tell(self, message: ToSupervisor) -> None:
        """Send one message; what cannot be sent any more is dropped, as the close will tell."""

    def hang_up(self) -> None:
        """Close the channel: another supervisor of the same lease took over."""


@dataclass
class _Member:
    """One further node; ``wire`` is None while its channel is broken."""

    wire: Wire | None
    where: NodeAddress


@dataclass
class _Group:
    """The further nodes of one lease's attempt, by rank."""

    attempt: int
    members: dict[int, _Member] = field(default_factory=dict)


class Members:
    """The further nodes of all leases."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def joined(self, lease: Lease, rank: int, wire: Wire, hello: FromSupervisor) -> bool:
        """Take one that said hello; false where another one of this rank did with another key."""
        group = self._groups.get(lease.id)
        if group is None or group.attempt != lease.attempt:
            group = self._groups[lease.id] = _Group(lease.attempt)
        where = NodeAddress(address=hello["address"], public_key=hello["public_key"])
        known = group.members.get(rank)
        if known is not None:
            if known.where["public_key"] != where["public_key"]:
                return False
            if known.wire is not None and known.wire is not wire:
                known.wire.hang_up()
        group.members[rank] = _Member(wire, where)
        return True

    def lost(self, lease_id: str, wire: Wire) -> None:
        """Note that a channel closed: it comes back, or its pod goes."""
        group = self._groups.get(lease_id, _Group(0))
        for each in group.members.values():
            if each.wire is wire:
                each.wire = None

    def complete(self, lease_id: str, attempt: int, nodes: int) -> bool:
        """Whether all further nodes of an attempt said hello."""
        if nodes == 1:
            return True
        group = self._groups.get(lease_id)
        return (
            group is not None
            and group.attempt == attempt
            and group.members.keys() == set(range(1, nodes))
        )

    def introduce(self, lease: Lease, first: Wire, launch_key: str) -> None:
        """Tell the first one where the others are, and them its key, once all are there."""
        if not launch_key or not self.complete(lease.id, lease.attempt, lease.nodes):
            return
        members = [self._groups[lease.id].members[rank] for rank in range(1, lease.nodes)]
        for each in members:
            if each.wire is not None:
                each.wire.tell({"type": "admit", "client_key": launch_key, "kernel_id": ""})
        first.tell({"type": "nodes", "nodes": [each.where for each in members]})

    def forget(self, kept: set[str]) -> None:
        """Drop those of leases that are over."""
        for lease_id in self._groups.keys() - kept:
            del self._groups[lease_id]

    def close(self) -> None:
        """Hang up at shutdown."""
        for group in self._groups.values():
            for each in group.members.values():
                if each.wire is not None:
                    each.wire.hang_up()
