"""What projects and people have left to spend, and whose budget is used up.

Charged is from *active* to the start of *draining*, at the price of the grant.  What was
charged before is passed in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpulease.policy import queue
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import Lease, LeaseState, Snapshot, once
from gpulease.policy.projects import AtZero, Budget, Projects

_HOUR = 3600.0


@dataclass(frozen=True)
class Remainder:
    """What is left (GPU-hours at price 1) of how much, until when.

    ``whose`` is ``project`` or ``person``: which of the two bounds is the nearer one.
    """

    left: float
    of: float
    until: datetime
    whose: str
    at_zero: AtZero


@dataclass(frozen=True)
class Use:
    """One stretch of a lease that is charged: ``units`` devices at ``price`` an hour each.

    ``estimated``: its end is when something was heard of the lease last.
    """

    lease_id: str
    user: str
    project: str
    gpu_class: str
    pool: str
    units: int
    price: float
    since: datetime
    until: datetime
    estimated: bool = False

    def seconds(self, since: datetime | None = None, until: datetime | None = None) -> float:
        """Return its device-seconds, of those between two instants."""
        begin = self.since if since is None else max(since, self.since)
        end = self.until if until is None else min(until, self.until)
        return max(0.0, (end - begin).total_seconds()) * self.units

    def hours(self, since: datetime | None = None, until: datetime | None = None) -> float:
        """Return what it costs, in GPU-hours at its price."""
        return self.seconds(since, until) / _HOUR * self.price


def use_of(before: Lease | None, after: Lease) -> Use | None:
    """Return the stretch that a change of a lease ends, ``None`` when it ends none."""
    if before is None or before.charged_from is None or after.charged_from is not None:
        return None
    return Use(
        after.id,
        after.user,
        after.project,
        after.gpu_class,
        after.pool,
        len(before.devices),
        after.price,
        before.charged_from,
        max(before.charged_from, after.charged_until or before.charged_from),
        after.charge_estimated,
    )


def running(lease: Lease, now: datetime) -> Use | None:
    """Return the stretch of a lease that is charged now, until now."""
    if lease.charged_from is None:
        return None
    until = max(now, lease.charged_from)
    ended = replace(lease, charged_from=None, charged_until=until)
    return use_of(lease, ended)


def charged(lease: Lease, since: datetime, until: datetime) -> float:
    """Return what a lease costs between two instants in GPU-hours, as it is charged now."""
    if lease.charged_from is None:
        return 0.0
    seconds = (until - max(since, lease.charged_from)).total_seconds()
    return max(0.0, seconds) / _HOUR * len(lease.devices) * lease.price


@once
def all_spent(snapshot: Snapshot) -> Mapping[tuple[str, str], float]:
    """Return what each person has spent of each project's budget in its present period."""
    projects = snapshot.policy.projects
    found = dict(snapshot.spent)
    periods = {
        each.name: each.budget.period(snapshot.now) for each in projects.leaves if each.budget
    }
    for lease in queue.holding(snapshot):
        project = projects.home(lease.project)
        period = periods.get(project.name)
        if period is not None:
            key = project.name, lease.user
            found[key] = found.get(key, 0.0) + charged(lease, period[0], snapshot.now)
    return found


@once
def _by_project(snapshot: Snapshot) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for (project, _), hours in all_spent(snapshot).items():
        found[project] = found.get(project, 0.0) + hours
    return found


def spent(snapshot: Snapshot, project: str, user: str | None = None) -> float:
    """Return what a project, or one person of it, has spent in its budget's present period."""
    if user is None:
        return _by_project(snapshot).get(project, 0.0)
    return all_spent(snapshot).get((project, user), 0.0)


def remainder(snapshot: Snapshot, project: str, user: str | None) -> Remainder | None:
    """Return what a person may still spend in a project, ``None`` where nothing bounds it.

    ``user``: ``None`` for all of its people together.
    """
    home = snapshot.policy.projects.home(project)
    budget = home.budget
    period = budget.period(snapshot.now) if budget is not None else None
    if budget is None or period is None:
        return None
    bounds = [
        Remainder(most - used, most, period[1], whose, budget.at_zero)
        for whose, most, used in (
            ("project", budget.gpu_hours, spent(snapshot, home.name)),
            ("person", budget.of(user) if user else None, spent(snapshot, home.name, user)),
        )
        if most is not None
    ]
    return min(bounds, key=lambda each: each.left, default=None)


def of_lease(snapshot: Snapshot, lease: Lease) -> Remainder | None:
    """Return what is left of what a lease or request is charged to, ``None`` for no bound."""
    return remainder(snapshot, lease.project, lease.user)


def _is_over(snapshot: Snapshot, lease: Lease, found: Remainder) -> bool:
    """Whether nothing is left of what a lease is charged to, or too little to let a request start.

    A request needs a minimum runtime's worth, no more: what is left may be used up to the last.
    """
    if lease.state is not LeaseState.QUEUED:
        return found.left <= 0
    gpu_class = snapshot.policy.by_name.get(lease.gpu_class)
    price = gpu_class.device_price if gpu_class is not None else 1.0
    least = time_outs_of(snapshot.policy, lease).minimum_runtime / _HOUR * lease.count * price
    return found.left <= 0 or found.left < least


@once
def exhausted(snapshot: Snapshot) -> frozenset[str]:
    """Return the leases and requests that may go on beyond their budget, from what is left over."""
    return frozenset(_over(snapshot, AtZero.BORROW))


@once
def ended(snapshot: Snapshot) -> frozenset[str]:
    """Return the leases and requests that nothing is left for."""
    return frozenset(_over(snapshot, AtZero.END))


def _over(snapshot: Snapshot, at_zero: AtZero) -> list[str]:
    budgets: dict[str, Budget | None] = {x.name: x.budget for x in snapshot.policy.projects.leaves}
    if not any(budgets.values()):
        return []
    home, left, found = snapshot.policy.projects.home, dict[tuple[str, str], Remainder | None](), []
    for lease in snapshot.leases:
        project = home(lease.project).name
        budget = budgets.get(project)
        if budget is None or budget.at_zero is not at_zero or lease.state is LeaseState.ENDED:
            continue
        key = project, lease.user
        if key not in left:
            left[key] = remainder(snapshot, project, lease.user)
        mine = left[key]
        if mine is not None and _is_over(snapshot, lease, mine):
            found.append(lease.id)
    return found


_Period = tuple[datetime, datetime]


class Accounts:
    """The sums under the projects of one policy.

    Args:
        projects: whose half-life and budgets count.
        now: the instant that decayed use is kept for; any will do.
    """

    def __init__(self, projects: Projects, now: datetime) -> None:
        self.projects = projects
        self._reference = now
        self._decayed: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        self._spent: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._periods = self._present(now)

    def add(self, use: Use) -> None:
        """Count a stretch that is over."""
        seconds = use.seconds() * self._weight(use.until, self._reference)
        self._decayed[use.project, use.user, use.pool] += seconds
        home = self.projects.home(use.project).name
        period = self._periods.get(home)
        if period is not None:
            self._spent[home, use.user] += use.hours(*period)

    def use(self, now: datetime) -> dict[tuple[str, str, str], float]:
        """Return device-seconds, decayed until now, by project, person and pool.

        Empty where nothing is decided by them: there are as many as people, and each plan asks.
        """
        if not self.projects.use_counts:
            return {}
        factor = self._weight(self._reference, now)
        return {key: seconds * factor for key, seconds in self._decayed.items()}

    def spent(self, now: datetime) -> dict[tuple[str, str], float]:
        """Return what is spent of each budget's present period, by project and person."""
        present = {name for name, (since, until) in self._periods.items() if since <= now < until}
        return {key: hours for key, hours in self._spent.items() if key[0] in present}

    def since(self, half_lives: float) -> datetime:
        """Return from when on uses count: so many half-lives, or the oldest period's beginning."""
        begun = [since for since, _ in self._periods.values()]
        return min(
            [self._reference - timedelta(seconds=half_lives * self.projects.half_life), *begun]
        )

    def is_over(self, now: datetime) -> bool:
        """Whether the period of some budget has changed since."""
        return any(not since <= now < until for since, until in self._periods.values())

    def renew(self, now: datetime) -> None:
        """Begin the budgets' new periods: nothing is spent of them yet."""
        before, self._periods = self._periods, self._present(now)
        changed = {name for name in before if before[name] != self._periods.get(name)}
        for key in [key for key in self._spent if key[0] in changed]:
            del self._spent[key]

    def _present(self, now: datetime) -> dict[str, _Period]:
        found = {x.name: x.budget.period(now) for x in self.projects.leaves if x.budget}
        return {name: period for name, period in found.items() if period is not None}

    def _weight(self, then: datetime, now: datetime) -> float:
        half_life = self.projects.half_life
        if half_life <= 0:
            return 0.0
        return float(0.5 ** ((now - then).total_seconds() / half_life))
