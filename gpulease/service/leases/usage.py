"""What was charged, cached for each plan, and its sums for readers.

Two running sums follow the store: use that decays, and what is spent of each budget's present
period.  The time of pods that stood ready is charged to nobody; its sums of each day (UTC) are kept
for admins.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from gpulease.errors import GPULeaseError
from gpulease.policy.budgets import Accounts, Use, running, use_of
from gpulease.policy.model import PolicyDocument, Snapshot
from gpulease.policy.projects import AtZero, Budget, Projects
from gpulease.providers.base import WarmPods
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.metrics import Metrics
from gpulease.service.notices import Notice
from gpulease.store import Change, usage
from gpulease.system.background import keep_polling

log = logging.getLogger(__name__)

#: What was used so many half-lives ago counts less than a thousandth.
_HALF_LIVES = 10
#: Seconds between two looks for a new period or policy.
EVERY = 20.0
#: Of a budget, the part at which its owners are told.
TOLD_AT = 0.8
#: Of pools of whole devices.
_WHOLE: Mapping[str, int] = {}
#: The store's note of which budgets were told of.
_TOLD = "budgets_told"


@dataclass(eq=False)
class UsageSums:
    """The sums.

    Args:
        ledger: reaches the store.
        policy: the policy in force.
        tell: sends a notice.
    """

    ledger: Ledger
    policy: Callable[[], PolicyDocument]
    tell: Callable[[Notice], None]
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._accounts = Accounts(Projects(), self.clock())
        self._told: dict[str, str] = {}  # project -> the beginning of the period it was told in
        self._due: list[Notice] = []
        self._wake = asyncio.Event()

    def use(self, now: datetime) -> dict[tuple[str, str, str], float]:
        """Return device-seconds, decayed until now, by project, person and pool."""
        return self._accounts.use(now)

    def spent(self, now: datetime) -> dict[tuple[str, str], float]:
        """Return what is spent of each budget's present period, by project and person."""
        return self._accounts.spent(now)

    async def load(self) -> None:
        """Read what counts from the store, for the policy in force."""
        now = self.clock()
        accounts, store = Accounts(self.policy().projects, now), self.ledger.store
        since = accounts.since(_HALF_LIVES)
        found = await charged(self.ledger, since, now + timedelta(days=1))
        told: dict[str, str] = json.loads(await self.ledger.call(store.noted, _TOLD) or "{}")
        self._told |= {name: at for name, at in told.items() if name not in self._told}
        for use in found:
            accounts.add(use)
        self._accounts = accounts

    def recorded(self, changes: Sequence[Change]) -> None:
        """Count what changes of leases ended; called once the store has them."""
        for change in changes:
            use = use_of(change.before, change.after)
            if use is not None:
                self._accounts.add(use)

    async def watch(self) -> None:
        """Follow new periods and policies, and tell of budgets that run out; until cancelled."""
        await keep_polling(
            self._look, self._wake, every=EVERY, log=log, failed="the use could not be read"
        )

    async def _look(self) -> None:
        await self.tell_due()
        await self.follow()

    async def follow(self) -> None:
        """Read again where a period is over or the policy has other projects."""
        now, projects = self.clock(), self.policy().projects
        if self._accounts.is_over(now) or projects is not self._accounts.projects:
            await self.load()

    def tell_of(self, snapshot: Snapshot, spent: Callable[[Snapshot, str], float]) -> None:
        """Note the budgets of which most is spent, to notify of once in a period."""
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
                await self.ledger.call(self.ledger.store.note, _TOLD, json.dumps(self._told))
            except GPULeaseError:
                self._due = due + self._due
                raise
        for notice in due:
            self.tell(notice)


async def charged(
    ledger: Ledger,
    since: datetime,
    until: datetime,
    *,
    users: Sequence[str] | None = None,
    projects: Sequence[str] | None = None,
) -> list[Use]:
    """Return what was charged, read in parts: a year of it keeps no change waiting.

    Raises:
        GPULeaseError: the store cannot be read.
    """
    found: list[Use] = []
    after = -1
    while after:
        some, after = await ledger.read(usage.part, since, until,
            users=users, projects=projects, after=max(after, 0),
        )  # fmt: skip
        found += some
    return found


_AT_ZERO = {
    AtZero.END: "At zero its leases are warned and end. An admin of the hub can give it more.",
    AtZero.BORROW: "At zero its leases go on while nobody else wants their GPUs.",
}


def _notice(project: str, used: float, budget: Budget, until: datetime) -> Notice:
    day = until.astimezone(ZoneInfo(budget.zone)) - timedelta(seconds=1)
    return Notice(
        "budget",
        project,
        "budget",
        f"Project {project} has spent {used:.1f} of its {budget.gpu_hours:g} GPU-hours; "
        f"they last until {day:%d %B}.",
        _AT_ZERO[budget.at_zero],
        budget.contact,
    )


def sums(
    uses: Iterable[Use],
    since: datetime,
    until: datetime,
    by: Sequence[str],
    zone: ZoneInfo,
    *,
    parts: Mapping[str, int] = _WHOLE,
) -> list[dict[str, object]]:
    """Return device-hours and cost of each group, in the order of the groups' names.

    ``by``: any of ``project``, ``person``, ``class`` and ``day`` (of ``zone``).  ``parts``: into
    how many parts the cards of a pool are divided, where they are.
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
            hours[key] += seconds / 3600 / parts.get(use.pool, 1)
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


#: The store's note of the sums.
_WARM_NOTE = "warm_seconds"
#: Days for which sums are kept.
_WARM_DAYS = 400
#: Seconds between two looks.
WARM_EVERY = 60.0


@dataclass(eq=False)
class WarmTime:
    """The sums.

    Args:
        ledger: reaches the store.
        pods: where pods stand ready, if anywhere.
        clock: the time, UTC.
    """

    ledger: Ledger
    pods: WarmPods | None
    metrics: Metrics
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._days: dict[str, dict[str, float]] = {}  # day -> class -> seconds

    async def load(self) -> None:
        """Read the sums from the store."""
        store = self.ledger.store
        self._days = json.loads(await self.ledger.call(store.noted, _WARM_NOTE) or "{}")

    def hours(self, since: date, until: date) -> dict[str, float]:
        """Return the hours of GPUs by class, of whole days from ``since`` to ``until``."""
        found: dict[str, float] = {}
        for day, classes in self._days.items():
            if since <= date.fromisoformat(day) <= until:
                for name, seconds in classes.items():
                    found[name] = found.get(name, 0.0) + seconds / 3600
        return {name: round(found[name], 4) for name in sorted(found)}

    async def watch(self) -> None:
        """Add up and write down, until cancelled; what is not stored is stored later."""
        failed = "the time of pods that stand ready was not stored"
        await keep_polling(self.look, every=WARM_EVERY, log=log, failed=failed)

    async def look(self) -> None:
        """Add what passed since the last look, and write it down.

        Raises:
            GPULeaseError: the store does not take it.
        """
        more = self.pods.seconds() if self.pods is not None else {}
        today = self.clock().date()
        sums = self._days.setdefault(today.isoformat(), {}) if more else {}
        for name, seconds in more.items():
            sums[name] = sums.get(name, 0.0) + seconds
            self.metrics.stood_ready(name, seconds)
        if more:
            oldest = (today - timedelta(days=_WARM_DAYS)).isoformat()
            self._days = {day: held for day, held in self._days.items() if day >= oldest}
            await self.ledger.call(self.ledger.store.note, _WARM_NOTE, json.dumps(self._days))
