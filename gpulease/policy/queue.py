"""Who waits, in which order, and what beside capacity keeps a request waiting.

Owns the order of the queue and the limits of users and servers.  Refuses to know devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gpulease.policy.lifecycle import HOLDING
from gpulease.policy.memo import once
from gpulease.policy.model import Bound, GPUClass, Lease, LeaseState, PolicyDocument, Snapshot

#: Why a request waits that a bound of the site's has no room for.
QUOTA = "quota_exceeded"


def order(lease: Lease) -> tuple[tuple[datetime, int], str]:
    """Sort key of the queue: the ticket, which survives every return to the queue."""
    return lease.ticket, lease.id


@once
def waiting(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the queued requests, first come first."""
    return tuple(sorted((x for x in snapshot.leases if x.state is LeaseState.QUEUED), key=order))


@once
def waiting_ids(snapshot: Snapshot) -> frozenset[str]:
    """Return the identifiers of the queued requests."""
    return frozenset(lease.id for lease in waiting(snapshot))


@once
def holding(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the leases that hold devices, by ticket."""
    return tuple(sorted((x for x in snapshot.leases if x.state in HOLDING), key=order))


def class_of(policy: PolicyDocument, name: str) -> GPUClass | None:
    """Return the class on offer by this name, or ``None``."""
    return next((c for c in policy.classes if c.name == name), None)


def pool_of(snapshot: Snapshot, lease: Lease) -> str:
    """Return the pool a lease draws on; one whose class is gone belongs to its devices' pool."""
    gpu_class = class_of(snapshot.policy, lease.gpu_class)
    if gpu_class is not None:
        return gpu_class.pool
    return next((d.pool for d in snapshot.devices if d.uuid in lease.devices), "")


class Limits:
    """Counts what each user and server holds, and what a plan grants them on top."""

    def __init__(
        self, policy: PolicyDocument, held: Iterable[Lease], bounds: Iterable[Bound] = ()
    ) -> None:
        self._policy = policy
        self._bounds = tuple(bounds)
        self._left = [bound.left for bound in self._bounds]
        self._meant: dict[tuple[str, str], list[int]] = {}  # request and class -> its bounds
        for index, bound in enumerate(self._bounds):
            for key in bound.takes:
                self._meant.setdefault(key, []).append(index)
        self._users: dict[str, int] = {}
        self._servers: dict[tuple[str, str], int] = {}
        for lease in held:
            self.grant(lease)

    def grant(self, lease: Lease) -> None:
        """Count one more lease of this user and server."""
        server = (lease.user, lease.server)
        self._users[lease.user] = self._users.get(lease.user, 0) + 1
        self._servers[server] = self._servers.get(server, 0) + 1

    def start(self, lease: Lease, gpu_class: str) -> None:
        """Count a lease that this plan starts as a class."""
        self.grant(lease)
        key = (lease.id, gpu_class)
        for index in self._meant.get(key, ()):
            self._left[index] -= self._bounds[index].takes[key]

    def bound(self, lease: Lease, gpu_class: str) -> Bound | None:
        """Return a bound of the site's that has too little left to serve this request so."""
        key = (lease.id, gpu_class)
        for index in self._meant.get(key, ()):
            wanted = self._bounds[index].takes[key]
            if wanted > 0 and wanted > self._left[index]:
                return self._bounds[index]
        return None

    def exceeded(self, lease: Lease) -> str:
        """Return the wait reason when one more would be above a limit, else ``""``."""
        if self._servers.get((lease.user, lease.server), 0) >= self._policy.leases_per_server:
            return "server_limit"
        if self._users.get(lease.user, 0) >= self._policy.leases_per_user:
            return "user_limit"
        return ""


def kept_waiting(lease: Lease, now: datetime, limits: Limits) -> str | None:
    """Return why this request waits whatever is free, or ``None`` when only capacity is missing.

    While a failed start backs off, its own reason stays.
    """
    if not lease.server_ready:
        return "server_starting"
    if lease.not_before is not None and lease.not_before > now:
        return lease.reason or "backing_off"
    if exceeded := limits.exceeded(lease):
        return exceeded
    return QUOTA if limits.bound(lease, lease.gpu_class) is not None else None
