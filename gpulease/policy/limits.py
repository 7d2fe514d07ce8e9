"""What beside capacity keeps a request waiting: limits, budgets, quotas, a server that starts.

It counts what each server, person and project holds, and what a plan grants on top.  Requests that
limits would keep waiting for ever are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from gpulease.errors import GPULeaseError
from gpulease.policy import budgets, queue
from gpulease.policy.model import Bound, Lease, PolicyDocument, Snapshot
from gpulease.policy.projects import PoolBounds
from gpulease.texts import Text, counted

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
        self.bounds = tuple(bounds)
        self._left = [bound.left for bound in self.bounds]
        self._meant: dict[tuple[str, str], list[int]] = {}  # request and class -> its bounds
        for index, bound in enumerate(self.bounds):
            for key in bound.takes:
                self._meant.setdefault(key, []).append(index)
        self._classes = policy.by_name
        self._shared = bool(policy.projects.all)
        self._users: dict[str, int] = defaultdict(int)
        self._servers: dict[tuple[str, str], int] = defaultdict(int)
        #: project, person, pool -> units
        self._mine: dict[tuple[str, str, str], int] = defaultdict(int)
        self._units: dict[tuple[str, str], int] = defaultdict(int)  # of a project in a pool
        for lease in held:
            self.grant(lease)

    @classmethod
    def of(cls, snapshot: Snapshot, *, bounds: bool = False) -> Limits:
        """Return what is held now; ``bounds``: with those of the site."""
        held = (*queue.holding(snapshot), *queue.reshaping(snapshot))
        unpaid = budgets.ended(snapshot)
        return cls(snapshot.policy, held, snapshot.bounds if bounds else (), unpaid)

    def grant(self, lease: Lease) -> None:
        """Count one more lease of this user, server and project."""
        self._users[lease.user] += 1
        self._servers[lease.user, lease.server] += 1
        if self._shared:
            pool, bounds = self._pool_of(lease), self._bounds_of(lease)
            units = len(lease.devices) or lease.count
            if bounds.home.bounds_people:
                self._mine[bounds.home.name, lease.user, pool] += units
            for name in bounds.counted:
                self._units[name, pool] += units

    def start(self, lease: Lease) -> None:
        """Count a lease that this plan starts, as the class it is served by."""
        if not lease.kept:
            self.grant(lease)
        for index in self._meant.get((lease.id, lease.gpu_class), ()):
            self._left[index] -= self.bounds[index].taken(lease, lease.count)

    def bound(self, lease: Lease) -> Bound | None:
        """Return a bound of the site's that has too little left for a request's least."""
        return self._bound(lease, lease.least)

    def _bound(self, lease: Lease, number: int) -> Bound | None:
        for index in self._meant.get((lease.id, lease.gpu_class), ()):
            wanted = self.bounds[index].taken(lease, number)
            if wanted > 0 and wanted > self._left[index]:
                return self.bounds[index]
        return None

    def exceeded(self, lease: Lease) -> str:
        """Return the wait reason when even its least would be above a limit, else ``""``."""
        user = lease.user
        if user in self._users:
            if self._servers[user, lease.server] >= self._policy.leases_per_server:
                return "server_limit"
            if self._users[user] >= self._policy.leases_per_user:
                return "user_limit"
        if lease.id in self._unpaid:
            return "no_budget"
        if not self._shared:
            return ""
        bounds = self._bounds_of(lease)
        return self._of_project(lease) if bounds.bounding or lease.in_quota_only else ""

    def _bounds_of(self, lease: Lease) -> PoolBounds:
        return self._policy.projects.bounds(lease.project, self._pool_of(lease))

    def _pool_of(self, lease: Lease) -> str:
        gpu_class = self._classes.get(lease.gpu_class)
        return gpu_class.pool if gpu_class is not None else ""

    def within(self, request: Lease) -> Lease:
        """Return a request with the devices that its limits have room for, if it allows fewer."""
        if not (request.min_count and (self._shared or self.bounds)) or request.kept:
            return request
        rooms = self._rooms(request) if self._shared else ()
        room = min((left for _, left in rooms), default=request.count)
        count = request.fit(max(room, request.min_count))
        while count > request.least and self._bound(request, count) is not None:
            count = request.fit(count - 1)
        return request if count == request.count else replace(request, count=count)

    def smallest(self, lease: Lease) -> tuple[str, int] | None:
        """Return the limit that leaves a lease the fewest units, and how many; ``None``: none."""
        if not self._shared:
            return None
        rooms = self._rooms(lease)
        return min(rooms, key=lambda room: room[1], default=None)

    def _of_project(self, lease: Lease) -> str:
        return next((why for why, left in self._rooms(lease) if left < lease.least), "")

    def _rooms(self, lease: Lease) -> Iterator[tuple[str, int]]:
        """Yield each limit that bounds a lease in its project, and how many units it leaves it."""
        bounds, pool = self._bounds_of(lease), self._pool_of(lease)
        home = bounds.home
        member = home.member(lease.user).limit
        if member is not None:
            yield "member_limit", member - self._mine[home.name, lease.user, pool]
        for name, limit in bounds.limits:
            yield "project_limit", limit - self._units[name, pool]
        if lease.in_quota_only:
            own = self._policy.projects.guarantee(home, pool)
            yield "quota_only", own - self._units[bounds.counted[0], pool]


def kept_waiting(lease: Lease, now: datetime, limits: Limits) -> str | None:
    """Return why this request waits whatever is free, or ``None`` when only capacity is missing.

    While a failed start backs off, its own reason stays.
    """
    if not lease.server_ready:
        return "server_starting"
    if lease.is_backing_off(now):
        return lease.reason or "backing_off"
    if lease.kept:  # a lease in another shape: what it holds is counted already
        return None
    if exceeded := limits.exceeded(lease):
        return exceeded
    return QUOTA if limits.bounds and limits.bound(lease) is not None else None


def check_ever(request: Lease, policy: PolicyDocument) -> None:
    """Refuse a request that would be above a limit even if nobody held anything.

    Raises:
        GPULeaseError: ``bad_count``.
    """
    smallest = Limits(policy, ()).smallest(request)
    if smallest is not None and smallest[1] < request.least:
        raise _never(request, *smallest)


def _never(request: Lease, why: str, most: int) -> GPULeaseError:
    words = {
        "member_limit": Text(
            "You asked for {asked}, and may hold {most} at once in project {project}.",
            asked=_amount(request, request.least),
            most=_amount(request, most),
            project=request.project,
        ),
        "project_limit": Text(
            "You asked for {asked}, and project {project} may hold {most} at once.",
            asked=_amount(request, request.least),
            most=_amount(request, most),
            project=request.project,
        ),
        "quota_only": Text(
            "You asked for {asked} within the guarantee of project {project}, which is {most}.",
            asked=_amount(request, request.least),
            most=_amount(request, most),
            project=request.project,
        ),
    }
    return GPULeaseError(
        "bad_count",
        words[why],
        next_step=Text("Ask for no more than that.")
        if most > 0
        else Text("Ask for another class, or charge it to another project."),
        numbers={"asked": request.least, "max": most},
        status=422,
    )


def _amount(request: Lease, count: int) -> Text:
    if request.card_parts:
        return Text("{percent}% of a card", percent=round(100 * count / request.card_parts))
    return counted("{n} GPU", "{n} GPUs", count)
