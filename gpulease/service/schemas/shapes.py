"""The shapes of what the service answers.

Those of leases stand in ``protocol``, those of reservations in ``reservation_shapes``.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NotRequired, TypeVar

from typing_extensions import TypedDict

from gpulease.protocol.service import BudgetView
from gpulease.simulate.outcome import ReplayOutcome

Item = TypeVar("Item")


class Items(TypedDict, Generic[Item]):
    """A whole list."""

    items: list[Item]


class Page(TypedDict, Generic[Item]):
    """A page of a list."""

    items: list[Item]
    total: int
    offset: int
    limit: int


class Problem(TypedDict):
    """A refusal (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    reason: str  # machine-readable code
    numbers: dict[str, Any]
    next_step: str


# ``from`` is a keyword of Python's.
LeaseEvent = TypedDict(
    "LeaseEvent",
    {
        "at": str,
        "who": str,
        "why": str,
        "from": str,
        "to": str,
        "attempt": int,
        "note": str,
        "version": int,
    },
)


class DecisionView(LeaseEvent):
    """A change of a lease with what it was decided from."""

    planned: bool  # by the planner, not by a person or the hub
    inputs: list[str]  # in sentences; empty once the plan is not kept any more
    numbers: dict[str, Any]  # those of the sentences


class UseReading(TypedDict):
    """What a lease's GPUs did at one moment; ``None`` is not known."""

    at: str
    utilisation: float | None  # 0..1, the highest of the ten seconds before
    memory_used: int | None  # bytes


class ServerView(TypedDict):
    """A running notebook server of the asker's."""

    name: str
    display_name: str
    ready: bool
    url: str


class IncidentView(TypedDict):
    """What went wrong around a lease."""

    at: str
    who: str
    why: str
    sentence: str
    user: str
    lease: str
    gpu_class: str
    note: str


class ChangeView(IncidentView):
    """One change of a lease, as the audit has it."""

    source: str
    target: str


class AskerView(TypedDict):
    """Whom the service takes the asker for, and what they may do."""

    name: str
    kind: str
    groups: list[str]
    may_ask: bool
    admin: bool
    leads: list[str]
    leads_all: bool
    server: str | None


class PolicyAbout(TypedDict):
    """One version of the policy."""

    version: int
    author: str
    at: str


class PolicyView(PolicyAbout):
    """One version of the policy with its text."""

    text: str
    pinned: bool


class Finding(TypedDict):
    """What is wrong with a text, and where."""

    line: int
    column: int
    message: str
    next_step: str
    level: str
    sentence: str


class PolicyChecked(TypedDict):
    """What a text would do."""

    valid: bool
    findings: list[Finding]
    changes: list[str]  # each member that differs
    effects: list[str]  # what it means for whom, what happens at once first
    warned: int  # running leases that would be warned at once


class TimeOutView(TypedDict):
    """One time-out with what a form says beside it; durations in seconds."""

    name: str
    counted: bool  # a number, not a duration
    value: float  # in force
    default: float
    least: float
    most: float
    why: str
    below: str  # the time-out that it is never longer than; "" where there is none


class TimeOutsView(TypedDict):
    """The time-outs in force."""

    items: list[TimeOutView]
    version: int
    pinned: bool


class TimeOutsChecked(PolicyChecked):
    """What time-outs would do, and the document that says so."""

    text: str


class Range(TypedDict):
    """The least and the most by which a figure would have differed; ``None`` is unknown."""

    least: float | None
    most: float | None


class Sensitivity(TypedDict):
    """What the time to think has to do with it: the factors, and each figure's range over them."""

    think: list[float]
    differences: dict[str, Range]


class TradeOff(TypedDict):
    """A point of the curve: an idle time-out (seconds), and what it would have come to.

    ``saved_hours``: GPU-hours less than each notebook's until it was closed; ``interrupted``: GPUs
    that were wanted again within a minute after they were released.
    """

    idle: float
    saved_hours: float
    interrupted: int


class WhatIfView(TypedDict):
    """What a text would have made of the last days."""

    since: str
    until: str
    days: float
    policy_version: int
    requests: int
    left_out: int
    cut: bool
    changes: list[str]
    seconds: float
    assumption: str
    now: ReplayOutcome
    then: ReplayOutcome
    sensitivity: Sensitivity
    idle: float  # the time-out in force, seconds
    curve: list[TradeOff]  # by idle time-out; the one in force is among them
    sentences: list[str]
    complete: bool


class AlertView(TypedDict):
    """What an admin should know; ``lease`` is "" where it is about no lease."""

    reason: str
    lease: str
    sentence: str


class HealthView(TypedDict):
    """How each part of the service is: ``ok`` or why not; ``alerts`` are their reasons."""

    status: Literal["ok", "degraded", "error"]
    version: str
    store: str
    planning: str
    hub: str
    hubs: dict[str, str]  # further ones, by name
    provider: str
    devices: int
    simulated: bool
    device_problem: str
    gaps: list[str]
    pools: list[str]
    alerts: list[str]
    policy_version: int
    policy_pinned: bool
    supervisors: int


class ResourceNames(TypedDict):
    """The pool and class of an extended resource; "" where several ask for it."""

    pool: str
    gpu_class: str


class BatchesTaken(TypedDict):
    """What the service has of an agent's post."""

    taken: int
    repeated: int
    now: str
    leaving: bool  # the node goes or is worked on: the agent lets go of a driver that nobody uses
    resources: NotRequired[dict[str, ResourceNames]]


class GroupView(TypedDict):
    """A group of the hub's."""

    name: str


class PoolShare(TypedDict):
    """How a project stands in one pool, in devices."""

    guarantee: int
    limit: int | None
    held: int
    waiting: int
    share: int  # what it may hold while everybody who asks for more does


class ProjectView(TypedDict):
    """A project or department, as one person sees it."""

    name: str
    title: str
    parent: str
    group: str
    mine: bool  # an ask of theirs may be charged to it
    weight: float
    pools: dict[str, PoolShare]
    budget: BudgetView | None  # what this person may still spend of it
    spent: NotRequired[dict[str, float]]  # by person, for who leads it


_OfClass = TypedDict("_OfClass", {"class": NotRequired[str]})  # no name that Python takes


class UsageRow(_OfClass):
    """What was used of one group of leases; only what was asked for by name is there."""

    project: NotRequired[str]
    person: NotRequired[str]
    day: NotRequired[str]
    hours: float  # of one device
    gpu_hours: float  # at the class's price: what a budget pays
    estimated: bool  # some of it ended unseen, and was counted until it was heard of last


class TimelineStep(TypedDict):
    """One step of a chart: averages of GPUs that leases hold, and of people who wait."""

    at: str  # where the step begins
    busy: float
    quiet: float
    idle: float
    unknown: float
    waiting: float
    granted: int  # how many got a GPU in it
    wait: float | None  # seconds that these waited, the median; None: nobody got one
    longest_wait: float | None


class TimelineView(TypedDict):
    """How GPUs were used over a time; ``devices`` are those that are there now."""

    since: str
    until: str
    step: float  # seconds
    devices: int
    items: list[TimelineStep]


class DeviceUse(TypedDict):
    """How one device was used in equal steps: shares of each, 0 to 1."""

    uuid: str
    name: str  # "" where it is no longer there
    pool: str
    node: str
    held: list[float]  # by a lease
    busy: list[float]


class DevicesUse(TypedDict):
    """How each device was used over a time."""

    since: str
    until: str
    step: float  # seconds
    items: list[DeviceUse]


class UsageView(TypedDict):
    """What was used in a time; ``warm`` (admins): GPU hours of pods that stood ready, by class."""

    since: str
    until: str
    items: list[UsageRow]
    warm: dict[str, float]


class RunView(TypedDict):
    """A run of a whole notebook."""

    id: str
    user: str
    notebook: str
    result: str  # the notebook with its output, beside the source
    opens: str  # the same below the root of the person's server, "" outside of it
    server: str
    state: Literal["waiting", "starting", "running", "ended"]
    reason: str
    sentence: str
    next_step: str
    outcome: Literal["succeeded", "failed", "cancelled", "skipped"] | None
    attempt: int
    cells: int
    done: int
    gpu: str  # how it stands with its GPU, "" for none
    gpu_class: str | None
    count: int
    nodes: int
    min_count: int | None  # it can live with so few; None: all
    at_least: int | None  # it can live with so many percent of a card; None: all
    seconds: float | None
    project: str | None
    budget: BudgetView | None  # what is left of what its GPU is charged to; None: no bound
    parameters: dict[str, str | bool | int | float | None]
    after: list[str]
    array: str
    index: int | None
    on_loss: Literal["fail", "restart"]
    created: str
    started: str | None
    ended: str | None
    version: int


class RunEventView(TypedDict):
    """What happened to a run."""

    at: str
    who: str
    what: str  # machine-readable
    sentence: str
    note: str
