"""What came of one replay: GPU time, waits, reclaims and fairness, by project and altogether.

A wait that was open at the end, or given up, is censored, not dropped.  Fairness is seen from
outside: shares by max-min, and Jain's index.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, TypeVar

from gpulease.policy import lifecycle
from gpulease.policy.capacity import waits_for_node
from gpulease.policy.explanation.forecast import EndedWait
from gpulease.policy.model import (
    Action,
    Alert,
    Device,
    Drain,
    EndReason,
    Lease,
    LeaseState,
    PolicyDocument,
    Warn,
)
from gpulease.simulate.people import Person, Phase
from gpulease.simulate.spans import Spans, Timeline


@dataclass(frozen=True)
class Wait:
    """Seconds of one wait; ``over`` is false where it was given up or still went on."""

    seconds: float
    over: bool


def quantile(waits: Iterable[Wait], share: float) -> float | None:
    """Return the seconds within which ``share`` (0..1) of the waits are over.

    ``None`` where so many were never seen to end, and where there are none.
    """
    # Of equal lengths those that are over come first: an open one lasts longer.
    ordered = sorted(waits, key=lambda wait: (wait.seconds, not wait.over))
    lasting = 1.0
    for number, wait in enumerate(ordered):
        if wait.over:
            lasting *= 1 - 1 / (len(ordered) - number)
            if lasting <= 1 - share + 1e-12:
                return wait.seconds
    return None


K = TypeVar("K")


def max_min(wanted: Mapping[K, float], capacity: float) -> dict[K, float]:
    """Return each one's fair share: nobody gets more than wanted, what is left is split evenly."""
    shares: dict[K, float] = {}
    left, rest = capacity, len(wanted)
    for key, want in sorted(wanted.items(), key=lambda item: item[1]):
        shares[key] = min(want, left / rest)
        left -= shares[key]
        rest -= 1
    return shares


def jain(values: Iterable[float]) -> float | None:
    """Return Jain's index of fairness, from 1/n (one has all) to 1 (even); ``None`` of nothing."""
    each = list(values)
    squares = sum(value * value for value in each)
    return sum(each) ** 2 / (len(each) * squares) if squares else None


#: Use within so many seconds after a lease was taken as idle: it was not idle.
FALSE_WITHIN = 60.0
#: Parts of the time for which the picture shows what was held, used and waited for.
BINS = 240
_HOUR = 3600.0


@dataclass(frozen=True)
class Waits:
    """Waits for a GPU; seconds, ``None`` where more than half (of 20, one) were still open."""

    asked: int
    served: int
    given_up: int
    open: int
    p50: float | None
    p95: float | None


@dataclass(frozen=True)
class Expected:
    """The estimate that people got when they began to wait: between which times they would start.

    ``told`` of those who started, ``within`` of them did so in that time; ``width`` is the median
    of those intervals, ``waited`` of the waits they were for (seconds).
    """

    told: int = 0
    within: int = 0
    width: float | None = None
    waited: float | None = None


@dataclass(frozen=True)
class ProjectOutcome:
    """One project's part; ``saturation`` is held by fair share while somebody waited."""

    project: str
    held_hours: float
    busy_hours: float
    waits: Waits
    reclaims: int
    false_reclaims: int
    saturation: float | None


@dataclass(frozen=True)
class ReplayOutcome:
    """What came of one replay; hours are GPU-hours, ``gpus`` the most that were there at once.

    Attributes:
        held_hours: by leases, and by pods that stood ready for one.
        ready_hours: of these, by pods that stood ready.
        added_hours: how long added nodes were there, used or not.
        session_hours: what holding the GPU until each notebook was closed would have taken.
        saved_hours: that, less what was held.
        false_reclaims: leases taken as idle whose person wanted the GPU within a minute.
        reattaches: asks of a session that had had a GPU before.
        jain: Jain's index of the projects' saturations, 1 is even; ``None`` without contention.
        bins: for each part of the time the mean GPUs held and used, and requests waiting.
        gpu: the time line of the GPU that was to be watched, else of the one that was held most.
    """

    name: str
    seconds: float
    gpus: int
    sessions: int
    held_hours: float
    ready_hours: float
    added_hours: float
    busy_hours: float
    wanted_hours: float
    session_hours: float
    saved_hours: float
    waits: Waits
    expected: Expected
    reclaims: int
    false_reclaims: int
    reattaches: int
    warnings: int
    refused: Mapping[str, int]
    alerts: Mapping[str, int]
    jain: float | None
    projects: tuple[ProjectOutcome, ...]
    plans: int
    bins: tuple[tuple[float, float, float], ...] = field(repr=False)
    gpu: Timeline = field(default=Timeline(), repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


class Tally:
    """Counts while a replay runs."""

    def __init__(self, length: float, policy: PolicyDocument, watch: str = "") -> None:
        self._length = length
        self._watch = watch
        self._granted: dict[str, tuple[str, ...]] = {}  # lease -> its devices
        self._used_by: dict[str, tuple[str, ...]] = {}  # session -> devices of its present cell
        self._spans = Spans(length)
        self._policy = policy
        self._pools = {each.name: each.pool for each in policy.classes}
        self._capacity: Counter[str] = Counter()
        self._most = 0
        self._added = 0
        self._added_hours = 0.0
        self._t = 0.0
        self._held: Counter[tuple[str, str]] = Counter()  # (pool, project) -> GPUs
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._ready = 0
        self._ready_hours = 0.0
        self._using = 0.0
        self._held_cards = 0.0
        self._fair: dict[tuple[str, str], float] | None = None
        self._got: dict[str, float] = defaultdict(float)
        self._due: dict[str, float] = defaultdict(float)
        self._bins = [[0.0, 0.0, 0.0] for _ in range(BINS)]
        self._held_hours: dict[str, float] = defaultdict(float)
        self._busy_hours: dict[str, float] = defaultdict(float)
        self._asked: Counter[str] = Counter()
        self._waits: list[tuple[str, Wait]] = []
        self._given_up: Counter[str] = Counter()
        self._reclaims: Counter[str] = Counter()
        self._false: Counter[str] = Counter()
        self._reattaches = 0
        self._warnings = 0
        self._refused: Counter[str] = Counter()
        self._alerts: Counter[str] = Counter()
        self._plans = 0
        self._expected: list[tuple[bool, float, float]] = []  # within, width, waited

    def pass_until(self, at: float) -> None:
        """Count the time until ``at`` for how things stand."""
        waiting = self._waiting.total()
        self._fill(at, self._held_cards + self._ready, self._using, waiting)
        self._ready_hours += self._ready * (at - self._t) / _HOUR
        self._added_hours += self._added * (at - self._t) / _HOUR
        if waiting:
            if self._fair is None:
                self._fair = self._shares()
            for key, share in self._fair.items():
                self._got[key[1]] += self._held[key] * (at - self._t)
                self._due[key[1]] += share * (at - self._t)
        self._t = at

    def _fill(self, until: float, *values: float) -> None:
        width = self._length / BINS
        at = self._t
        while at < until:
            number = min(int(at / width), BINS - 1)
            edge = until if number == BINS - 1 else min(until, (number + 1) * width)
            edge = max(edge, at + 1e-6)
            for index, value in enumerate(values):
                self._bins[number][index] += value * (edge - at) / width
            at = edge

    def _shares(self) -> dict[tuple[str, str], float]:
        """Return each project's fair share of each pool in which somebody waits."""
        found: dict[tuple[str, str], float] = {}
        for pool in {pool for (pool, _), n in self._waiting.items() if n}:
            keys = {key for key in (*self._held, *self._waiting) if key[0] == pool}
            wanted = {key: self._held[key] + self._waiting[key] for key in keys}
            found |= max_min(
                {key: n for key, n in wanted.items() if n}, self._capacity.get(pool, 0)
            )
        return found

    def lease(self, before: Lease | None, after: Lease) -> None:
        """Count a lease's change."""
        for lease, sign in ((before, -1), (after, 1)):
            if lease is None:
                continue
            key = self._pools.get(lease.gpu_class, ""), project_of(lease)
            if lease.state is LeaseState.QUEUED or waits_for_node(lease, self._policy):
                self._waiting[key] += sign * lease.count
            elif lease.state in lifecycle.HOLDING:
                self._granted[lease.id] = lease.devices
                self._held[key] += sign * lease.count
                self._held_cards += sign * lease.cards
        self._fair = None

    def planned(self, actions: Iterable[Action], leases: Mapping[str, Lease]) -> None:
        """Count what one plan decided."""
        self._plans += 1
        for action in actions:
            if isinstance(action, Alert):
                self._alerts[action.reason] += 1
            elif isinstance(action, Warn):
                self._warnings += 1
            elif isinstance(action, Drain) and action.end_reason is EndReason.IDLE:
                self._reclaims[project_of(leases[action.lease_id])] += 1

    def asked(self, person: Person, at: float) -> None:
        """Count an ask for a GPU."""
        self._asked[person.session.project] += 1
        self._reattaches += person.had
        if person.taken is not None and at - person.taken <= FALSE_WITHIN:
            self._false[person.session.project] += 1
        person.taken = None

    def refused(self, reason: str) -> None:
        """Count an ask that was refused at the door."""
        self._refused[reason] += 1

    def waited(self, person: Person, at: float) -> None:
        """Count a wait that is over."""
        if person.asked is not None:
            self._waits.append((person.session.project, Wait(at - person.asked, over=True)))

    def gave_up(self, person: Person, at: float) -> None:
        """Count a wait that was given up."""
        self._given_up[person.session.project] += 1
        if person.asked is not None:
            self._waits.append((person.session.project, Wait(at - person.asked, over=False)))

    def expected(self, ended: Iterable[EndedWait]) -> None:
        """Count what was told to those whose wait is over."""
        for each in ended:
            if each.said.between is not None:
                early, late = each.said.between
                width, waited = (late - early), (each.until - each.since)
                within = early <= each.until <= late
                self._expected.append((within, width.total_seconds(), waited.total_seconds()))

    def begins(self, person: Person) -> None:
        """Count a GPU cell that begins."""
        self._using += self._cards_of(person)
        self._used_by[person.session.id] = self._granted.get(person.lease or "", ())

    def used(self, person: Person, seconds: float) -> None:
        """Count a GPU cell that ends, and how long it used its GPUs."""
        self._using -= self._cards_of(person)
        cards = self._cards_of(person)
        self._busy_hours[person.session.project] += seconds * cards / _HOUR
        self._spans.busy(self._used_by.pop(person.session.id, ()), self._t - seconds, self._t)

    def _cards_of(self, person: Person) -> float:
        """Return how many cards a person's session uses: a part of one where its class is that."""
        found = self._policy.by_name.get(person.session.gpu_class or self._policy.default_class)
        if found is None or not found.parts:
            return person.session.count
        return found.parts / found.card_parts

    def held(self, lease: Lease, seconds: float) -> None:
        """Count what a lease held, from its grant until its devices were free again."""
        self._held_hours[project_of(lease)] += seconds * lease.cards / _HOUR
        self._spans.held(lease.devices, self._t - seconds, self._t)

    def there(self, devices: Sequence[Device], added: int) -> None:
        """Count which GPUs are there from now on, and how many of them are of added nodes."""
        self._capacity = Counter(each.pool for each in devices)
        self._most = max(self._most, len({each.card or each.uuid for each in devices}))
        self._added, self._fair = added, None

    def ready(self, pods: int) -> None:
        """Count how many pods stand ready from now on."""
        self._ready = pods

    def outcome(self, name: str, people: Sequence[Person], end: float) -> ReplayOutcome:
        """Return what came of it."""
        still: Counter[str] = Counter()
        for person in people:
            if person.phase is Phase.BUSY:
                self.used(person, end - person.began)
            if person.phase is Phase.WAITING and person.asked is not None:
                still[person.session.project] += 1
                self._waits.append((person.session.project, Wait(end - person.asked, over=False)))
        session_hours = sum(_session_seconds(p, end) * self._cards_of(p) for p in people) / _HOUR
        held = sum(self._held_hours.values()) + self._ready_hours
        saturations = {
            project: self._got[project] / due for project, due in self._due.items() if due > 0
        }
        names = sorted({person.session.project for person in people})
        return ReplayOutcome(
            name=name,
            seconds=end,
            gpus=self._most,
            sessions=len(people),
            held_hours=held,
            ready_hours=self._ready_hours,
            added_hours=self._added_hours,
            busy_hours=sum(self._busy_hours.values()),
            wanted_hours=sum(
                sum(b.busy for b in p.session.bursts) * self._cards_of(p) for p in people
            )
            / _HOUR,
            session_hours=session_hours,
            saved_hours=session_hours - held,
            waits=self._of(None, still),
            expected=self._told(),
            reclaims=self._reclaims.total(),
            false_reclaims=self._false.total(),
            reattaches=self._reattaches,
            warnings=self._warnings,
            refused=dict(sorted(self._refused.items())),
            alerts=dict(sorted(self._alerts.items())),
            jain=jain(saturations.values()),
            projects=tuple(
                ProjectOutcome(
                    project=each,
                    held_hours=self._held_hours[each],
                    busy_hours=self._busy_hours[each],
                    waits=self._of(each, still),
                    reclaims=self._reclaims[each],
                    false_reclaims=self._false[each],
                    saturation=saturations.get(each),
                )
                for each in names
            ),
            plans=self._plans,
            bins=tuple((held, used, waiting) for held, used, waiting in self._bins),
            gpu=self._spans.timeline(self._watch),
        )

    def _told(self) -> Expected:
        if not self._expected:
            return Expected()
        within, widths, waits = zip(*self._expected, strict=True)
        return Expected(len(within), sum(within), median(widths), median(waits))

    def _of(self, project: str | None, still: Counter[str]) -> Waits:
        """Return the waits of one project, or of all."""

        def sum_of(counted: Counter[str]) -> int:
            return counted.total() if project is None else counted[project]

        waits = [wait for whose, wait in self._waits if project in (None, whose)]
        return Waits(
            asked=sum_of(self._asked),
            served=sum(wait.over for wait in waits),
            given_up=sum_of(self._given_up),
            open=sum_of(still),
            p50=quantile(waits, 0.5),
            p95=quantile(waits, 0.95),
        )


def project_of(lease: Lease) -> str:
    """Return the project that a lease counts for."""
    return lease.project or (lease.groups[0] if lease.groups else "")


def _session_seconds(person: Person, end: float) -> float:
    """Return for how long a GPU of the person's own would have been held: until they left."""
    if person.entered is None:
        return 0.0
    return (end if person.gone_at is None else person.gone_at) - person.entered
