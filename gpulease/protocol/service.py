"""REST and events: messages between any client and the lease service.

The bus passes the same views of a lease on to the kernels.
"""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # pydantic takes no other one before Python 3.12

LeaseStateName = Literal["queued", "starting", "active", "warned", "draining", "ended"]


class Blocker(TypedDict):
    """A variable that cannot go home, and why."""

    name: str
    reason: str
    sentence: str
    size: int | None


class KeepView(TypedDict):
    """Whether and how the holder may keep the lease a while."""

    allowed: bool
    left: int  # how many Keeps are left
    seconds: float  # how long one Keep lasts
    reason: str  # why not, when not allowed; else ""


class DeviceView(TypedDict):
    """One device of a lease."""

    uuid: str
    name: str
    memory: int  # bytes
    simulated: bool


class EndView(TypedDict):
    """How a lease ended."""

    reason: str  # EndReason
    sentence: str
    note: str  # what an admin wrote, may be ""
    at: str
    parked: NotRequired[int]  # values that wait for the next lease of the same notebook
    lost: NotRequired[list[Blocker]]  # what could neither come home nor be parked


class GrantView(TypedDict):
    """What the notebook server's own channel (and nobody else) learns of a starting lease."""

    attempt: int
    token: str  # the supervisor's credential for the supervisor channel
    visible_devices: str  # for CUDA_VISIBLE_DEVICES; "" for simulated devices
    simulated: bool
    drain_max: float
    park_dir: str  # where values that cannot go home are parked; "" for none
    park_limit: NotRequired[int]  # bytes that the user's parked values may take
    park_expiry: NotRequired[float]  # seconds after which parked values are removed


class BudgetView(TypedDict):
    """What may still be spent, in GPU-hours at the class's price."""

    left: float
    of: float
    until: str
    whose: Literal["project", "person"]
    at_zero: Literal["end", "borrow"]


class UpgradeView(TypedDict):
    """What a lease can be now at its holder's word: nearer to what was asked for."""

    gpu_class: str
    title: str  # of the class, as people read it
    count: int
    percent: NotRequired[int]  # of a card, where it has a part of one


class LeaseView(TypedDict):
    """A request or lease as everyone sees it."""

    id: str
    version: int  # grows with every change
    user: str
    server: str  # "" is the default server
    kernel_id: str | None  # the kernel that asked, None for a page
    origin: str  # page | magic | lab | cli
    project: NotRequired[str]  # what it is charged to; "" where the policy has no projects
    budget: NotRequired[BudgetView | None]  # what is left of what it is charged to; None: no bound
    gpu_class: str  # what serves it
    needs: NotRequired[str]  # what was demanded of each GPU beyond its class
    asked_class: NotRequired[str]  # what was asked for, where a fall-back of it serves; else ""
    count: int  # of all nodes together
    min_count: NotRequired[int]  # it can live with so few; 0: all or nothing
    asked_count: NotRequired[int]  # what was asked for, where it has fewer; else 0
    percent: NotRequired[int]  # of a card, where it has a part of one; absent: whole GPUs
    asked_percent: NotRequired[int]  # what was asked for, where it has less; else 0
    least_percent: NotRequired[int]  # it can live with so little; 0: all or nothing
    upgrade: NotRequired[UpgradeView | None]  # what of that is free now; None: nothing
    nodes: NotRequired[int]  # into so many equal parts its devices are divided; absent: 1
    simulated: bool
    state: LeaseStateName
    reason: str  # wait or warn reason code, "" when none
    sentence: str  # what is happening and why
    next_step: str  # what comes next and what one can do now
    position: int | None  # 1 is next; None when not queued
    expected_start: str | None  # None is unknown
    expected_between: NotRequired[list[str]]  # 8 of 10 such requests start then; [] is unknown
    created: str
    active_since: str | None
    hard_end: str | None
    warned_until: str | None
    drain_until: str | None
    ends_at: str | None  # what ends it, or warns of its end, next if it stays as it is: when,
    ends_by: str  # and what: a cause of ``policy.explanation.what_ends``; "" where none is known
    verdict: str  # busy | quiet | idle | unknown
    utilisation: float | None  # 0..1, peak of the last 10 s; None is no data
    memory_used: NotRequired[int | None]  # bytes that it holds of its devices; None is not known
    keep: KeepView
    devices: list[DeviceView]
    end: EndView | None
    click_runs_cells: str  # auto | all | none: which cells a page's ask sends to the GPU
    wait: NotRequired[float]  # how long a GPU cell that says nothing waits for it
    detail: NotRequired[str]  # to admins alone: the provider's own words on this attempt
    blockers: NotRequired[list[Blocker]]  # what the last drain could not bring home
    # To a notebook that asks: how the class's image differs from it, a sentence each.
    differences: NotRequired[list[str]]
    run: NotRequired[str]  # the background run whose server has it; absent: a person's own server
    notebook: NotRequired[str]  # to the holder alone: the notebook that uses it, "" is unknown
    busy_share: NotRequired[float | None]  # 0..1 of the time since active; None is not known
    grant: NotRequired[GrantView]  # on the server's own channel only


class ClassView(TypedDict):
    """A GPU class on offer, with what is free now."""

    name: str
    title: str
    memory: int
    simulated: bool
    total: int
    free: int
    queued: int
    reserved: NotRequired[int]  # beside those that are free: kept for seats of a reservation
    pool: NotRequired[str]  # classes of one pool have the same devices
    max_count: NotRequired[int]  # the most GPUs one request may ask for
    percent: NotRequired[int]  # of a card, that one GPU of it is; absent: whole GPUs
    steps: NotRequired[list[int]]  # with these percents of a card a lease of it can go on
    price: NotRequired[float]  # GPU-hours that a budget pays for an hour of one device
    expected_start: NotRequired[str | None]  # of one device asked for now; None is unknown
    # What adding a machine for a request usually takes; None is not now, absent is never (seconds).
    provision: NotRequired[float | None]
    spot: NotRequired[bool]  # added machines may be taken back at short notice


class ConnectionView(TypedDict):
    """What ``POST leases/{id}/connections`` gives a home kernel, once its key is admitted.

    ``gpulease companion --connection-file F`` writes the same object to F, with the client's own
    key pair added, so that ``%gpu connect F`` works without a hub.
    """

    lease_id: str
    address: str  # tcp://host:port of the supervisor's control server
    server_key: str  # Z85
    protocol: str
    simulated: bool
    gpu_class: str
    devices: list[DeviceView]
    client_public_key: NotRequired[str]
    client_secret_key: NotRequired[str]


class MessageView(TypedDict):
    """What an instructor or an admin tells the members of a group, or everybody."""

    id: str
    at: str
    until: str  # from then on it is shown no more
    by: str  # who wrote it
    group: str  # "" is everybody
    text: str


class EventSnapshot(TypedDict):
    """First message of the events websocket: everything the reader may see."""

    type: Literal["snapshot"]
    id: int
    leases: list[LeaseView]
    classes: list[ClassView]
    messages: NotRequired[list[MessageView]]
    now: NotRequired[str]  # the service's clock; countdowns are by it, not by the browser's


class EventDelta(TypedDict):
    """Later messages: one changed lease, the classes when what is free changed, or messages.

    ``messages`` are all that the reader is shown now, the newest last.
    """

    type: Literal["lease", "classes", "messages"]
    id: NotRequired[int]  # messages have none: a resume brings them again
    messages: NotRequired[list[MessageView]]
    lease: NotRequired[LeaseView]
    classes: NotRequired[list[ClassView]]
    now: NotRequired[str]
