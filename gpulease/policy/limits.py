"""What beside capacity keeps a request waiting: limits, budgets, quotas, a server that starts.

Owns the counting of what each server, person and project holds, and what a plan grants on top.
Refuses to know devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from gpulease.policy import budgets, queue
from gpulease.policy.model import Bound, Lease, PolicyDocument, Snapshot

#: Why a request waits that a bound of the site's has no room for.
QUOTA = "quota_exceeded"


class Limits:
    """Counts what each server, person and project holds, and what a plan grants them on top."""

    def __init__(
        self,
        policy: PolicyDocument,
        held: Iterable[Lease],
        bounds: Iterable[Bound] = (),
        unpaid: frozenset[str] = frozenset(),
    ) -> None:
        self._policy = policy
        self._unpaid = unpaid
        self._bounds = tuple(bounds)
        self._left = [bound.left for bound in self._bounds]
        self._meant: dict[tuple[str, str], list[int]] = {}  # request and class -> its bounds
        for index, bound in enumerate(self._bounds):
            for key in bound.takes:
                self._meant.setdefault(key, []).append(index)
        self._pools = {each.name: each.pool for each in policy.classes}
        self._users: Counter[str] = Counter()
        self._servers: Counter[tuple[str, str]] = Counter()
        self._units: Counter[tuple[str, ...]] = Counter()  # (project[, person], pool) -> units
        for lease in held:
            self.grant(lease)

    @classmethod
    def of(cls, snapshot: Snapshot, *, bounds: bool = False) -> Limits:
        """Return what is held now; ``bounds``: with those of the site."""
        held = queue.holding(snapshot)
        unpaid = budgets.ended(snapshot)
        return cls(snapshot.policy, held, snapshot.bounds if bounds else (), unpaid)

    def grant(self, lease: Lease) -> None:
        """Count one more lease of this user, server and project."""
        self._users[lease.user] += 1
        self._servers[lease.user, lease.server] += 1
        projects = self._policy.projects
        if projects.all:
            pool, units = self._pools.get(lease.gpu_class, ""), len(lease.devices) or lease.count
            home = projects.home(lease.project)
            self._units[home.name, lease.user, pool] += units
            for project in projects.above(home):
                self._units[project.name, pool] += units

    def start(self, lease: Lease) -> None:
        """Count a lease that this plan starts, as the class it is served by."""
        self.grant(lease)
        key = (lease.id, lease.gpu_class)
        for index in self._meant.get(key, ()):
            self._left[index] -= self._bounds[index].takes[key]

    def bound(self, lease: Lease) -> Bound | None:
        """Return a bound of the site's that has too little left to serve this request so."""
        key = (lease.id, lease.gpu_class)
        for index in self._meant.get(key, ()):
            wanted = self._bounds[index].takes[key]
            if wanted > 0 and wanted > self._left[index]:
                return self._bounds[index]
        return None

    def exceeded(self, lease: Lease) -> str:
        """Return the wait reason when one more would be above a limit, else ``""``."""
        if self._servers[lease.user, lease.server] >= self._policy.leases_per_server:
            return "server_limit"
        if self._users[lease.user] >= self._policy.leases_per_user:
            return "user_limit"
        if lease.id in self._unpaid:
            return "no_budget"
        return self._of_project(lease) if self._policy.projects.all else ""

    def _of_project(self, lease: Lease) -> str:
        projects, pool = self._policy.projects, self._pools.get(lease.gpu_class, "")
        home = projects.home(lease.project)
        member = home.member(lease.user).limit
        mine = self._units[home.name, lease.user, pool] + lease.count
        if member is not None and mine > member:
            return "member_limit"
        for project in projects.above(home):
            limit = project.share(pool).limit
            if limit is not None and self._units[project.name, pool] + lease.count > limit:
                return "project_limit"
        if lease.in_quota_only:
            own = projects.guarantee(home, pool)
            return "quota_only" if self._units[home.name, pool] + lease.count > own else ""
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
    return QUOTA if limits.bound(lease) is not None else None
