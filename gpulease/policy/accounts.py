"""Running sums of what leases that are over have used: use that decays, and what budgets spent.

Owns the two sums that a plan is made from.  Refuses to know where uses are kept.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from gpulease.policy.budgets import Use
from gpulease.policy.projects import Projects

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
