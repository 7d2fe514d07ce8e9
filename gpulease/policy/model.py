"""The nouns that policy decides about, as frozen dataclasses.

All times are timezone-aware UTC datetimes, all durations are seconds, all sizes are bytes.

A *request* and the *lease* it becomes are one record, ``Lease``: it begins ``queued`` and ends
``ended``; its ``ticket`` is its place in the queue and survives every return to the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property, wraps
from typing import Annotated, Any, TypeVar

from gpulease.policy.calendar.reservation import ReservationTerms, Window
from gpulease.policy.catalog import Device as Device
from gpulease.policy.catalog import Elastic
from gpulease.policy.catalog import GPUClass as GPUClass
from gpulease.policy.catalog import Pool as Pool
from gpulease.policy.catalog import TimeOuts as TimeOuts
from gpulease.policy.forms import One, Section, Span
from gpulease.policy.projects import Projects
from gpulease.policy.states import Action as Action
from gpulease.policy.states import Activate as Activate
from gpulease.policy.states import Alert as Alert
from gpulease.policy.states import Bind as Bind
from gpulease.policy.states import Clear as Clear
from gpulease.policy.states import ClickRuns
from gpulease.policy.states import DevicesBy as DevicesBy
from gpulease.policy.states import Drain as Drain
from gpulease.policy.states import End as End
from gpulease.policy.states import EndReason as EndReason
from gpulease.policy.states import EvidenceLevel as EvidenceLevel
from gpulease.policy.states import LeaseState as LeaseState
from gpulease.policy.states import Nominate as Nominate
from gpulease.policy.states import Progress as Progress
from gpulease.policy.states import Requeue as Requeue
from gpulease.policy.states import Reshape as Reshape
from gpulease.policy.states import Resume as Resume
from gpulease.policy.states import SetBack as SetBack
from gpulease.policy.states import Shape as Shape
from gpulease.policy.states import Start as Start
from gpulease.policy.states import Verdict as Verdict
from gpulease.policy.states import Wait as Wait
from gpulease.policy.states import Warn as Warn
from gpulease.texts import Said


@dataclass(frozen=True, kw_only=True)
class Limits(Section):
    """How much one may have and ask for; durations are seconds."""

    leases_per_server: Annotated[One, Said("Leases and requests of one server.")] = 1
    leases_per_user: Annotated[One, Said("Leases and requests of one person.")] = 2
    queue_max: Annotated[One, Said("Requests that may wait; more are refused.")] = 1000
    waiting_per_user: Annotated[One, Said("Requests of one person that may wait.")] = 4
    changes_per_minute: Annotated[
        One, Said("Changes by REST of one person in a minute; 60 times as many in a day.")
    ] = 120
    runs_per_user: Annotated[One, Said("Whole notebooks of one person at once.")] = 2
    batch_wait: Annotated[Span, Said("How long a run lets everybody else go first.")] = 14400.0
    batch_cell: Annotated[
        Span, Said("How long a run's cell may continue after the warning, when a person waits.")
    ] = 900.0
    gang_hold_max: Annotated[
        Span, Said("How long free GPUs are held for one request for several; 0 is never.")
    ] = 28800.0
    share_harm: Annotated[
        Span, Said("How long a lease may hold memory that others lack of their share of a card.")
    ] = 60.0


@dataclass(frozen=True)
class PolicyDocument(Limits):
    """The validated policy, one version of it.  ``policy.document`` reads and checks the YAML."""

    version: int
    pools: tuple[Pool, ...]
    classes: tuple[GPUClass, ...]
    default_class: str
    time_outs: TimeOuts = field(default_factory=TimeOuts)
    click_runs_cells: ClickRuns = ClickRuns.AUTO
    reservations: ReservationTerms = field(default_factory=ReservationTerms)
    projects: Projects = field(default_factory=Projects)
    drained_nodes: tuple[str, ...] = ()  # take nothing new, and their leases leave

    @cached_property
    def elastic(self) -> Mapping[str, Elastic]:
        """How the pools grow that do, by name."""
        return {each.name: each.elastic for each in self.pools if each.elastic is not None}

    @cached_property
    def parts(self) -> Mapping[str, int]:
        """Into how many parts the cards of those pools are divided that are, by name."""
        return {each.name: each.parts for each in self.pools if each.parts}

    @cached_property
    def by_name(self) -> Mapping[str, GPUClass]:
        """The classes by name; of two that share one, the first."""
        return {each.name: each for each in reversed(self.classes)}


@dataclass(frozen=True)
class Lease:
    """A request or lease, as stored."""

    id: str
    user: str
    server: str
    gpu_class: str  # what serves it, or would
    count: int
    ticket: tuple[datetime, int]
    created: datetime
    state: LeaseState = LeaseState.QUEUED
    state_since: datetime | None = None
    asked_class: str = ""  # what was asked for, where a fallback of it serves
    kernel_id: str | None = None
    origin: str = "magic"
    groups: tuple[str, ...] = ()
    project: str = ""
    wanted: float | None = None
    in_quota_only: bool = False
    needs: str = ""  # what it demands of each device beyond the class: ``policy.fitting``
    nodes: int = 1  # into so many equal parts its devices are divided, in their order
    min_count: int = 0  # with so few devices it can live as well; 0 is all or nothing
    asked_count: int = 0  # what was asked for, where it has fewer; 0 is ``count``
    card_parts: int = 0  # its devices are of so many parts of one card; 0 is whole devices
    steps: tuple[int, ...] = ()  # with these fewer ones alone it can live; () is any number
    batch: bool = False  # of a whole notebook's run: nobody sits at it
    reason: str = ""
    attempt: int = 0
    failures: int = 0  # starts that failed; capacity taken by others is not one
    stage_since: datetime | None = None  # since when a start is in its present stage
    not_before: datetime | None = None
    devices: tuple[str, ...] = ()
    active_since: datetime | None = None
    idle_from: datetime | None = None  # idle counts only from here: it came back from a drain
    claimed: datetime | None = None
    hard_end: datetime | None = None
    warned_until: datetime | None = None
    drain_until: datetime | None = None
    end_reason_wanted: EndReason | None = None
    undrainable: bool = False
    park: bool = False
    keeps: int = 0
    kept_until: datetime | None = None
    nominated_for: str | None = None
    becomes: Shape | None = None  # what it is after this drain, instead of ended
    kept: tuple[str, ...] = ()  # devices held for it from such a drain until it is active again
    gave: tuple[tuple[str, str], ...] = ()  # (device, request): what it gave up so, for whom
    server_ready: bool = True
    end_reason: EndReason | None = None
    end_note: str = ""
    end_cause: str = ""  # why it ended, more exactly: of START_FAILURES or LEAVING_CAUSES
    blockers: tuple[tuple[str, str], ...] = ()  # (name, why): not home from the last drain
    detail: str = ""  # the provider's last words on this attempt, for admins
    parked: int = 0  # how many values the last drain parked
    ended: datetime | None = None
    price: float = 1.0  # of one device an hour, as it was when the lease was granted
    pool: str = ""  # that it was granted from
    image: str = ""  # of the course on whose seat it started; "" is its class's
    charged_from: datetime | None = None  # since when it is charged, while it is
    charged_until: datetime | None = None  # of the last stretch that is over
    charge_estimated: bool = False  # its end is when something was heard of it last
    version: int = 1

    @property
    def wish(self) -> Hashable:
        """What it asks for: requests of one wish take from the same devices."""
        shape = self.count, self.nodes, self.min_count, self.steps
        return self.gpu_class, self.needs, *shape

    @cached_property
    def place(self) -> tuple[float, int, str]:
        """Where it stands among all that wait: by its ticket, as numbers that sort quickly."""
        return self.ticket[0].timestamp(), self.ticket[1], self.id

    @property
    def per_node(self) -> int:
        """How many devices stand together on one machine: an equal part for each of its nodes."""
        return self.count // self.nodes

    @property
    def giving(self) -> tuple[str, ...]:
        """The devices that it gives up when it leaves: all, but for those that it keeps."""
        kept = self.becomes.devices if self.becomes is not None else ()
        return tuple(uuid for uuid in self.devices if uuid not in kept) if kept else self.devices

    @property
    def least(self) -> int:
        """With how few devices it can live."""
        return min(self.min_count, self.count) or self.count

    @property
    def cards(self) -> float:
        """How many whole cards its devices come to."""
        return self.count / self.card_parts if self.card_parts else self.count

    @property
    def spares(self) -> int:
        """How many of its devices it can live without."""
        return max(0, len(self.devices) - self.least) if self.min_count else 0

    def is_over(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.hard_end is not None and now >= self.hard_end

    def is_backing_off(self, now: datetime) -> bool:
        """Whether it starts later, after a start that failed.

        What lies an hour ahead was noted while the machine's clock was: no start is put off so far.
        """
        return self.not_before is not None and now < self.not_before < now + timedelta(hours=1)

    def fit(self, number: int) -> int:
        """Return with how many of so many devices it can live, 0 for none."""
        if number >= self.count:
            return self.count
        if not self.min_count or number < self.least:
            return 0
        return max((each for each in self.steps if each <= number), default=0) or (
            0 if self.steps else number
        )

    def giving_up(self, wanted: int) -> int:
        """Return the fewest devices, at least ``wanted``, that it can give up, or 0."""
        left = self.fit(len(self.devices) - wanted) if 0 < wanted <= self.spares else 0
        return len(self.devices) - left if left else 0

    def shrunk(self, fewer: int) -> Shape:
        """Return what it becomes with so many devices fewer."""
        left = len(self.devices) - fewer
        return Shape(self.gpu_class, self.devices[: self.fit(left) or left])


@dataclass(frozen=True)
class Evidence:
    """The verdict on one lease now and since when it has stood without interruption.

    ``idle_for`` and ``quiet_for`` are the seconds that count towards the two time-outs: pauses by
    ``unknown`` and the warm-up are already left out.  ``unknown_since`` is set while no data comes.
    """

    verdict: Verdict
    since: datetime
    idle_for: float = 0.0
    quiet_for: float = 0.0
    unknown_since: datetime | None = None
    utilisation: float | None = None
    cells: int = 0
    used: bool = False  # whether a cell or a thread of its holder has run there since it began
    before: Verdict = Verdict.UNKNOWN  # the verdict that this one followed
    word_over: bool = False  # busy for so long by the companion's word alone that it is quiet
    taken: int = 0  # bytes of a shared card that it holds, where that is beyond its class's memory
    harms_since: datetime | None = None  # since when others there have come short of theirs by that


@dataclass(frozen=True)
class Observed:
    """What the provider and the supervisor channel show of one lease now.

    ``failed`` is a reason code of ``policy.lifecycle.START_FAILURES`` (anything else is read as
    ``supervisor_failed``).  ``gone`` is set only on proof that the attempt's processes ended.
    ``drained`` answers the drain that was sent last: it is ``""`` again once a drain or a resume
    has been sent.  ``devices`` are those that it really runs on, where the provider learns them
    only after the start; ``()`` while they are the granted ones.  ``stage`` is the reason code of
    what a start does now, and ``detail`` a sentence of the provider's about it, for admins.
    ``record`` is the lease as what runs describes itself, for a store that does not know it.
    ``parentless``: the notebook server is gone for good, there is nobody to drain to.
    ``left``: processes that live on though it is over, where the provider can do no more.
    ``said``: code of ``reasons.PROGRESS``, for its holder.  ``ends``: no end is granted beyond it.
    """

    lease_id: str
    attempt: int
    connected: bool = False
    failed: str = ""
    gone: bool = False
    drained: str = ""  # "", "done", "blocked", "parked"
    in_use: bool = False  # some home kernel holds a connection
    devices: tuple[str, ...] = ()
    stage: str = ""
    detail: str = ""
    record: Lease | None = None
    parentless: bool = False
    left: tuple[int, ...] = ()
    said: str = ""
    ends: datetime | None = None


@dataclass(frozen=True)
class Bound:
    """What the owner of the machines leaves to start, beside devices: a namespace's quota.

    ``detail`` names it for admins, with its numbers.  ``left`` is how much may be taken of it,
    ``takes`` how much each request takes that is named, with each number of devices that it can
    live with: (request, class that serves it) -> number -> amount.
    """

    detail: str
    left: Decimal
    takes: Mapping[tuple[str, str], Mapping[int, Decimal]]

    def taken(self, lease: Lease, number: int) -> Decimal:
        """Return how much a request takes with this number of devices."""
        return self.takes[lease.id, lease.gpu_class].get(number, Decimal(0))


@dataclass(frozen=True)
class Snapshot:
    """Everything one plan is made from.

    ``contended``: when others took a granted device, by pool; forgotten once a start succeeds.
    ``preferred_nodes``: the node of each request's notebook server, where its home can be mounted
    only there.
    ``use``: (project, person, pool) -> device-seconds of leases that are over, decayed until now.
    ``spent``: (project, person) -> GPU-hours at their price that leases which are over have taken
    of the project's budget in its present period; what runs now is not in it.
    ``wait_spread``: what ``explanation.waits`` found of late: the logarithms of the ratios of waits
    to what had been expected, between which 8 of 10 lie.
    """

    now: datetime
    policy: PolicyDocument
    devices: tuple[Device, ...]
    leases: tuple[Lease, ...]
    evidence: Mapping[str, Evidence]
    observed: Mapping[str, Observed]
    capacity_known: bool = True
    typical_length: float | None = None  # median seconds a lease lasted lately; None is unknown
    contended: Mapping[str, tuple[datetime, ...]] = field(default_factory=dict)
    bounds: tuple[Bound, ...] = ()
    preferred_nodes: Mapping[str, str] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()  # those that are open, and those that come within a day
    use: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    spent: Mapping[tuple[str, str], float] = field(default_factory=dict)
    away: tuple[datetime, datetime] | None = None  # when nobody watched, before the last start
    wait_spread: tuple[float, float] | None = None
    several_nodes: bool = False  # the provider can start a lease as several nodes now
    grows: bool = False  # elastic pools grow where leases run; a lone machine does not

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """What was worked out of it already: ``once``."""
        return {}


R = TypeVar("R")


def once(question: Callable[[Snapshot], R]) -> Callable[[Snapshot], R]:
    """Let a pure function of a snapshot be worked out once for each; nobody changes its answer."""

    @wraps(question)
    def answered(snapshot: Snapshot) -> R:
        memo = snapshot.memo
        if question in memo:
            known: R = memo[question]  # a plan asks thousands of times
            return known
        answer = memo[question] = question(snapshot)
        return answer

    return answered


def once_for_devices(
    question: Callable[[Sequence[Device]], R],
) -> Callable[[Snapshot], R]:
    """Let a pure function of the devices be worked out once for all snapshots that share them.

    Each ask makes a snapshot, and a large site has 40,000 devices.  The last two are known: plans
    have the devices with those marked that were just given back, all others have them as they are.
    """
    last: tuple[tuple[Sequence[Device], R], ...] = ()

    @wraps(question)
    def answered(snapshot: Snapshot) -> R:
        nonlocal last
        for devices, known in last:  # which another thread may replace meanwhile
            if devices is snapshot.devices:
                return known
        answer = question(snapshot.devices)
        last = ((snapshot.devices, answer), *last[:1])
        return answer

    return answered


def keep(question: Callable[[Snapshot], R], of: Snapshot, answer: R) -> None:
    """Let a snapshot have an answer that is known already."""
    of.memo[question.__wrapped__] = answer  # type: ignore[attr-defined]
