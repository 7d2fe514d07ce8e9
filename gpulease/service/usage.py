"""What was charged, kept at hand for each plan, and its sums for whoever looks at them.

Owns two running sums that follow the store: use that decays, and what is spent of each budget's
present period.  Refuses to decide what comes of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from gpulease.errors import GPULeaseError
from gpulease.policy.budgets import Use, running, use_of
from gpulease.policy.model import PolicyDocument, Snapshot
from gpulease.policy.projects import Budget, Projects
from gpulease.service.ledger import Ledger
from gpulease.service.notify import Notice
from gpulease.store import Change

log = logging.getLogger(__name__)

#: What was used so many half-lives ago counts less than a thousandth.
_HALF_LIVES = 10
#: Seconds between two looks for a new period or policy.
EVERY = 20.0
#: Of a budget, the part at which its owners are told.
TOLD_AT = 0.8
#: The store's note of which budgets were told of.
_TOLD = "budgets_told"
_Period = tuple[datetime, datetime] | None


class Usage:
    """The sums.

    Args:
        ledger: reaches the store.
        policy: the policy in force.
        tell: sends a notice.
    """

    def __init__(
        self,
        ledger: Ledger,
        policy: Callable[[], PolicyDocument],
        tell: Callable[[Notice], None],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._tell = tell
        self._clock = clock
        self._projects = Projects()
        self._periods: dict[str, _Period] = {}
        self._reference = clock()
        self._decayed: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        self._spent: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._told: dict[str, str] = {}  # project -> the beginning of the period it was told in
        self._due: list[Notice] = []
        self._wake = asyncio.Event()

    def use(self, now: datetime) -> dict[tuple[str, str, str], float]:
        """Return device-seconds, decayed until now, by project, person and pool."""
        factor = self._weight(self._reference, now)
        return {key: seconds * factor for key, seconds in self._decayed.items()}

    def spent(self, now: datetime) -> dict[tuple[str, str], float]:
        """Return what is spent of each budget's present period, by project and person."""
        present = {
            each.name for each in self._projects.leaves if _holds(self._periods.get(each.name), now)
        }
        return {key: hours for key, hours in self._spent.items() if key[0] in present}

    async def load(self) -> None:
        """Read what counts from the store, for the policy in force."""
        now, projects = self._clock(), self._policy().projects
        periods = {
            each.name: each.budget.period(now) if each.budget is not None else None
            for each in projects.leaves
        }
        since = now - timedelta(seconds=_HALF_LIVES * projects.half_life)
        begun = [period[0] for period in periods.values() if period is not None]
        store = self._ledger.store
        found = await self._ledger.call(store.usage, min([since, *begun]), now + timedelta(days=1))
        told: dict[str, str] = json.loads(await self._ledger.call(store.noted, _TOLD) or "{}")
        self._told |= {name: since for name, since in told.items() if name not in self._told}
        self._projects, self._periods, self._reference = projects, periods, now
        self._decayed.clear()
        self._spent.clear()
        for use in found:
            self._add(use)

    def recorded(self, changes: Sequence[Change]) -> None:
        """Count what changes of leases ended; called once the store has them."""
        for change in changes:
            use = use_of(change.before, change.after)
            if use is not None:
                self._add(use)

    async def watch(self) -> None:
        """Follow new periods and policies, and tell of budgets that run out; until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), EVERY)
            self._wake.clear()
            try:
                await self.tell_due()
                await self.follow()
            except GPULeaseError as error:
                log.warning("the use could not be read: %s", error.sentence)

    async def follow(self) -> None:
        """Read anew where a period is over or the policy has other projects."""
        now, projects = self._clock(), self._policy().projects
        over = any(not _holds(period, now) for period in self._periods.values() if period)
        if over or projects is not self._projects:
            await self.load()

    def tell_of(self, snapshot: Snapshot, spent: Callable[[Snapshot, str], float]) -> None:
        """Note the budgets of which most is spent, to be told of once in a period."""
        for project in snapshot.policy.projects.leaves:
            budget = project.budget
            period = budget.period(snapshot.now) if budget is not None else None
            if budget is None or period is None or not budget.gpu_hours:
                continue
            used, since = spent(snapshot, project.name), period[0].isoformat()
            if used >= TOLD_AT * budget.gpu_hours and self._told.get(project.name) != since:
                self._told[project.name] = since
                self._due.append(_notice(project.name, used, budget, period[1]))
                self._wake.set()

    async def tell_due(self) -> None:
        """Send what is due, once it is written down that it was: no restart repeats it."""
        due, self._due = self._due, []
        if due:
            try:
                await self._ledger.call(self._ledger.store.note, _TOLD, json.dumps(self._told))
            except GPULeaseError:
                self._due = due + self._due
                raise
        for notice in due:
            self._tell(notice)

    def _add(self, use: Use) -> None:
        self._decayed[use.project, use.user, use.pool] += use.seconds() * self._weight(
            use.until, self._reference
        )
        home = self._projects.home(use.project).name
        period = self._periods.get(home)
        if period is not None:
            self._spent[home, use.user] += use.hours(*period)

    def _weight(self, then: datetime, now: datetime) -> float:
        half_life = self._projects.half_life
        if half_life <= 0:
            return 0.0
        return float(0.5 ** ((now - then).total_seconds() / half_life))


def _holds(period: _Period, now: datetime) -> bool:
    return period is not None and period[0] <= now < period[1]


def _notice(project: str, used: float, budget: Budget, until: datetime) -> Notice:
    day = until.astimezone(ZoneInfo(budget.zone)) - timedelta(seconds=1)
    return Notice(
        "budget",
        project,
        "budget",
        f"Project {project} has spent {used:.1f} of its {budget.gpu_hours:g} GPU-hours; "
        f"they last until {day:%d %B}.",
        "At zero its leases are warned and end, or go on while nobody else wants their GPUs.",
        budget.contact,
    )


def sums(
    uses: Iterable[Use], since: datetime, until: datetime, by: Sequence[str], zone: ZoneInfo
) -> list[dict[str, object]]:
    """Return device-hours and cost of each group, in the order of the groups' names.

    ``by``: any of ``project``, ``person``, ``class`` and ``day`` (of ``zone``).
    """
    hours: defaultdict[tuple[str, ...], float] = defaultdict(float)
    costs: defaultdict[tuple[str, ...], float] = defaultdict(float)
    marked: set[tuple[str, ...]] = set()
    for use in uses:
        for begin, end in _days(use, since, until, zone) if "day" in by else [(since, until)]:
            seconds = use.seconds(begin, end)
            if seconds <= 0:
                continue
            day = max(begin, use.since).astimezone(zone).date().isoformat()
            names = {
                "project": use.project, "person": use.user, "class": use.gpu_class, "day": day,
            }  # fmt: skip
            key = tuple(names[each] for each in by)
            hours[key] += seconds / 3600
            costs[key] += use.hours(begin, end)
            if use.estimated:
                marked.add(key)
    return [
        {
            **dict(zip(by, key, strict=True)),
            "hours": round(hours[key], 4),
            "gpu_hours": round(costs[key], 4),
            "estimated": key in marked,
        }
        for key in sorted(hours)
    ]


def _days(
    use: Use, since: datetime, until: datetime, zone: ZoneInfo
) -> Iterable[tuple[datetime, datetime]]:
    """Yield the local days that a stretch touches, cut to the time that is looked at."""
    begin, last = max(since, use.since), min(until, use.until)
    while begin < last:
        local = begin.astimezone(zone)
        midnight = (local + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        end = min(last, midnight.astimezone(UTC))
        yield begin, end
        begin = end


def present(snapshot: Snapshot) -> list[Use]:
    """Return what is charged now, of leases that still run."""
    found = (running(lease, snapshot.now) for lease in snapshot.leases)
    return [each for each in found if each is not None]
