"""The supervisors of a lease's further nodes, until all are there and know the first one.

They admit the first one's key before it learns their addresses (who is refused once is not heard
again), so that what runs on them is sent from one to the other and not through here.
``supervisor_connections`` has the first one's channel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from gpulease.policy.model import Lease
from gpulease.protocol.reports import FromSupervisor
from gpulease.protocol.supervisor import NodeAddress, ToSupervisor


class Wire(Protocol):
    """A connected supervisor."""

    def tell(self, message: ToSupervisor) -> None:
        """Send one message; what cannot be sent any more is dropped, as the close will tell."""

    def hang_up(self) -> None:
        """Close the channel: another supervisor of the same lease took over."""


@dataclass
class _Member:
    """One further node."""

    wire: Wire | None  # None while its channel is broken
    where: NodeAddress
    admitted: str = ""  # the key that it hears


@dataclass
class _Group:
    """The further nodes of one lease's attempt, by rank."""

    attempt: int
    key: str = ""  # with which the first one launches
    members: dict[int, _Member] = field(default_factory=dict)


class Members:
    """The further nodes of all leases."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def joined(self, lease: Lease, rank: int, wire: Wire, hello: FromSupervisor) -> bool:
        """Take one that said hello; false where another one of this rank did with another key."""
        group = self._of(lease)
        where = NodeAddress(address=hello["address"], public_key=hello["public_key"])
        known = group.members.setdefault(rank, _Member(wire, where))
        if known.where["public_key"] != where["public_key"]:
            return False
        if known.wire is not None and known.wire is not wire:
            known.wire.hang_up()
        known.wire, known.where = wire, where
        _introduce(group, known)
        return True

    def launches(self, lease: Lease, key: str) -> None:
        """Have those that are there, and those that come, admit the first one's key."""
        group = self._of(lease)
        group.key = key
        for each in group.members.values():
            _introduce(group, each)

    def admitted(self, lease: Lease, rank: int, key: str) -> bool:
        """Note that one admitted a key; true where it is the last one that had to."""
        group = self._of(lease)
        member = group.members.get(rank)
        if member is None or key != group.key or member.admitted == key:
            return False
        member.admitted = key
        return self.complete(lease.id, lease.attempt, lease.nodes)

    def lost(self, lease_id: str, wire: Wire) -> None:
        """Note that a channel closed: it comes back, or its pod goes."""
        group = self._groups.get(lease_id, _Group(0))
        for each in group.members.values():
            if each.wire is wire:
                each.wire = None

    def complete(self, lease_id: str, attempt: int, nodes: int) -> bool:
        """Whether all further nodes of an attempt are there and admitted the first one's key."""
        if nodes == 1:
            return True
        group = self._groups.get(lease_id)
        return (
            group is not None
            and group.attempt == attempt
            and group.members.keys() == set(range(1, nodes))
            and all(each.admitted == group.key for each in group.members.values())
        )

    def nodes(self, lease: Lease) -> ToSupervisor:
        """Return the message to the first one once all are there."""
        members = self._groups[lease.id].members
        return {"type": "nodes", "nodes": [members[rank].where for rank in range(1, lease.nodes)]}

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

    def _of(self, lease: Lease) -> _Group:
        group = self._groups.get(lease.id)
        if group is None or group.attempt != lease.attempt:
            group = self._groups[lease.id] = _Group(lease.attempt)
        return group


def _introduce(group: _Group, member: _Member) -> None:
    if group.key and member.wire is not None and member.admitted != group.key:
        member.wire.tell({"type": "admit", "client_key": group.key, "kernel_id": ""})
