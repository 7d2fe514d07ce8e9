"""The words that gpulease's processes say to each other.

Owns names, versions and JSON shapes of six conversations, so that both ends read one page:

* **REST** between anyone and the lease service (``LeaseView`` and the lists of it);
* **events**: ``api/events`` websocket, service to a page or to one notebook server;
* **bus**: Unix socket of ``gpulease.lab``, notebook server to its kernels;
* **supervisor channel**: ``api/leases/{id}/supervisor`` websocket, lease supervisor to service;
* **desk**: CurveZMQ socket of the supervisor, home kernel to lease;
* **agent**: ``POST api/agents/batches``, a GPU node's agent to the service.

Refuses to know who sends what when: that stands in the rooms that speak.  The seventh conversation,
variables between home kernel and companion, belongs to ``gpulease.transfer``.
Times are ISO 8601 strings in UTC with offset, durations are seconds, sizes are bytes.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired, TypedDict

#: Both ends of supervisor channel, desk and wire must have the same major number.
PROTOCOL_VERSION: Final = "1.0"

#: Mark in the environment of every process of a lease; how a lease's processes are found again.
ENV_LEASE: Final = "GPULEASE_LEASE"
#: Path of the bus socket, set by ``gpulease.lab`` for the kernels it starts.
ENV_BUS: Final = "GPULEASE_BUS"
#: Public prefix of the lease service, with scheme and host, set by the spawner.
ENV_SERVICE_URL: Final = "GPULEASE_SERVICE_URL"
#: ``1`` where the IPython startup file shall load the kernel extension.
ENV_AUTOLOAD: Final = "GPULEASE_AUTOLOAD"

#: What a lease pod's manifest tells ``gpulease companion --pod``, beside ``ENV_LEASE`` and
#: ``ENV_SERVICE_URL``: which start of the lease this is (1 is the first);
ENV_ATTEMPT: Final = "GPULEASE_ATTEMPT"
#: the pod's address, which notebooks connect to (downward API ``status.podIP``);
ENV_POD_IP: Final = "GPULEASE_POD_IP"
#: ports of that address, ``LOWEST-HIGHEST``, the only ones that are listened on;
ENV_PORTS: Final = "GPULEASE_PORTS"
#: file of the projected token, read anew for each connection;
ENV_TOKEN_FILE: Final = "GPULEASE_TOKEN_FILE"  # noqa: S105 - a name
#: ISO time at which the lease ends when nobody says otherwise; "" where that is not known yet;
ENV_HARD_END: Final = "GPULEASE_HARD_END"
#: seconds from SIGTERM to SIGKILL (``terminationGracePeriodSeconds``);
ENV_GRACE: Final = "GPULEASE_GRACE"
#: seconds that a drain may take;
ENV_DRAIN_MAX: Final = "GPULEASE_DRAIN_MAX"
#: where home's volume is not mounted: the directory that takes its place and holds the mirror of
#: the working directory, at the path where home has it; "" where home is mounted;
ENV_MIRROR: Final = "GPULEASE_MIRROR"
#: bytes that a mirror may hold;
ENV_MIRROR_LIMIT: Final = "GPULEASE_MIRROR_LIMIT"
#: where values that cannot go home are parked, "" for nowhere; and whose they are.
ENV_PARK: Final = "GPULEASE_PARK"
ENV_USER: Final = "GPULEASE_USER"
ENV_SERVER: Final = "GPULEASE_SERVER"

#: Where notebooks find a lease pod, unless its manifest names other ports.
DEFAULT_PORTS: Final = (8890, 8990)

LeaseStateName = Literal["queued", "starting", "active", "warned", "draining", "ended"]


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


class LeaseView(TypedDict):
    """A request or lease as everyone sees it."""

    id: str
    version: int  # grows with every change
    user: str
    server: str  # "" is the default server
    kernel_id: str | None  # the kernel that asked, None for a page
    origin: str  # page | magic | lab | cli
    gpu_class: str  # what serves it
    asked_class: NotRequired[str]  # what was asked for, where a fall-back of it serves; else ""
    count: int
    simulated: bool
    state: LeaseStateName
    reason: str  # wait or warn reason code, "" when none
    sentence: str  # what is happening and why
    next_step: str  # what comes next and what one can do now
    position: int | None  # 1 is next; None when not queued
    expected_start: str | None  # None is unknown
    created: str
    active_since: str | None
    hard_end: str | None
    warned_until: str | None
    drain_until: str | None
    idle_end: str | None  # when it would be warned if it stays as it is
    verdict: str  # busy | quiet | idle | unknown
    utilisation: float | None  # 0..1, peak of the last 10 s; None is no data
    keep: KeepView
    devices: list[DeviceView]
    end: EndView | None
    click_runs_cells: bool  # a page's ask turns sticky on in the kernel
    wait: NotRequired[float]  # how long a GPU cell that says nothing waits for it
    detail: NotRequired[str]  # to admins alone: the provider's own words on this attempt
    blockers: NotRequired[list[Blocker]]  # what the last drain could not bring home
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
    max_count: NotRequired[int]  # the most devices one request may ask for


class EventSnapshot(TypedDict):
    """First message of the events websocket: everything the reader may see."""

    type: Literal["snapshot"]
    id: int
    leases: list[LeaseView]
    classes: list[ClassView]
    now: NotRequired[str]  # the service's clock; countdowns are by it, not by the browser's


class EventDelta(TypedDict):
    """Later messages: one changed lease, or the classes when what is free changed."""

    type: Literal["lease", "classes"]
    id: int
    lease: NotRequired[LeaseView]
    classes: NotRequired[list[ClassView]]
    now: NotRequired[str]


class KernelReport(TypedDict):
    """Server to service over the events websocket (``type: kernels``): the server's kernels."""

    id: str
    last_cell: str | None  # when a cell ran last, ISO; the newest is the page's kernel
    busy: bool


class Activity(TypedDict):
    """Supervisor to service: what lives in the lease, one a second, batched."""

    at: str
    cells: int  # user cells running now (sleep and input() included)
    threads: int  # threads the user started, alive
    processes: int  # processes the user started, alive
    tasks: NotRequired[int]  # tasks the user left on a companion's loop, alive
    use: float  # 0..1: peak share of one core that user code used; gpulease's own work left out
    transfers: bool  # gpulease itself moved values in this second


class Blocker(TypedDict):
    """A variable that cannot go home, and why."""

    name: str
    reason: str
    sentence: str
    size: int | None


#: Supervisor channel.  From the supervisor: hello, activity, drained, admitted, bye.
#: From the service: lease, admit, revoke, warn, clear, drain, resume, end.
SupervisorMessageType = Literal[
    "hello", "activity", "drained", "admitted", "bye",
    "lease", "admit", "revoke", "warn", "clear", "drain", "resume", "end",
]  # fmt: skip


class SupervisorMessage(TypedDict, total=False):
    """One message of the supervisor channel; the members that each type carries:

    * ``hello``: address, public_key (Z85), protocol, python, pid, attempt, keys (those admitted)
    * ``activity``: samples (list of Activity)
    * ``drained``: result (``done`` | ``blocked`` | ``parked``), blockers, parked, reason
    * ``bye``: reason (``parent_gone``, ``ended``, ``failed``), detail, blockers, parked
    * ``lease``: hard_end ("" while it has none): the first word of each connection, and after each
      change; nothing else moves the end that the supervisor keeps when the service is silent
    * ``admit``, ``revoke``: client_key (Z85), kernel_id
    * ``admitted``: client_key; the answer to ``admit``
    * ``warn``: until, reason, sentence;  ``clear``: the warning is over
    * ``drain``: until, reason, park (bool: park what cannot go home, then end),
      interrupt_grace (seconds until a cell that runs on is killed)
    * ``resume``: the drain is called off;  ``end``: reason
    """

    type: SupervisorMessageType
    address: str
    public_key: str
    protocol: str
    python: str
    pid: int
    attempt: int
    samples: list[Activity]
    result: str
    blockers: list[Blocker]
    parked: int  # how many values were parked
    keys: dict[str, str]  # client key -> kernel id
    reason: str
    detail: str
    sentence: str
    client_key: str
    kernel_id: str
    until: str
    hard_end: str
    park: bool
    interrupt_grace: float


class ConnectionView(TypedDict):
    """What ``POST leases/{id}/connections`` gives a home kernel, once its key is admitted.

    ``gpulease companion --connection-file F`` writes the same object to F, with the client's own
    key pair added, so that ``%gpu connect F`` works without a hub.
    """

    lease_id: str
    address: str  # tcp://host:port of the supervisor's desk
    server_key: str  # Z85
    protocol: str
    simulated: bool
    gpu_class: str
    devices: list[DeviceView]
    client_public_key: NotRequired[str]
    client_secret_key: NotRequired[str]


#: Desk, home kernel (DEALER) to supervisor (ROUTER): one JSON frame each way, with an ``id`` that
#: the answer repeats.  Calls: ``open`` (DeskOpen -> DeskOpened), ``interrupt``, ``abandon``
#: (kill this kernel's companion), ``close`` (end it in order), ``drained`` (DeskDrained),
#: ``mirror`` (root, wire_key -> MirrorView), ``ping``.
#: Pushed without id: ``warn``, ``clear``, ``drain``, ``resume``, ``companion_died``, ``end``.
#: Shapes: ``{"id": n, "call": name, "args": {...}}``, answered by ``{"id": n, "ok": ...}`` or
#: ``{"id": n, "problem": RFC 9457 object}``; pushed ``{"push": name, ...members}`` with the members
#: of the supervisor message of that name (``companion_died``: ``kernel_id``, ``detail``).
#:
#: Jupyter channels, home kernel to companion: ordinary messages.  An ``execute_request`` carries
#: home's own ``msg_id`` in its header and, under ``EXECUTE_METADATA`` in its metadata, an
#: ``ExecuteMetadata``; the companion runs the cell under that execution count.
EXECUTE_METADATA: Final = "gpulease"


class CellText(TypedDict):
    """A cell that ran at home, for tracebacks of functions that it defined."""

    name: str  # the file name that it was compiled under
    execution_count: int
    text: str


class ExecuteMetadata(TypedDict):
    """What home adds to an ``execute_request``'s metadata, under ``EXECUTE_METADATA``."""

    execution_count: int  # home's count for this cell: ``In[n]``, ``Out[n]``, ``Cell In[n]``
    cells: NotRequired[list[CellText]]  # home's cells since the last request


class DeskOpen(TypedDict):
    """Ask for this home kernel's companion; starts it when it does not run."""

    kernel_id: str
    protocol: str
    python: str  # "3.11.7"; another minor version is refused
    packages: dict[str, str]  # versions of packages whose objects travel
    cwd: str
    path: list[str]  # sys.path
    environ: dict[str, str]  # allow-listed by home, never tokens or device variables
    hash_seed: str  # PYTHONHASHSEED of home, "" when unset
    wire_key: str  # home's public key for the transfer wire (Z85)
    executable: NotRequired[str]  # sys.executable of home, used where it exists in the lease too


class DeskOpened(TypedDict):
    """The companion runs: where its Jupyter channels and its transfer wire are."""

    connection: dict[str, Any]  # jupyter_client connection info, with Curve keys
    wire_address: str
    wire_key: str  # Z85, the companion's server key
    pid: int
    fresh: bool  # False when the companion lived already
    warnings: list[str]  # sentences about differing package versions
    parked: str  # path of this kernel's parked values, "" for none
    mirror: NotRequired[str]  # home's files are mirrored below this directory; "" they are mounted


class MirrorView(TypedDict):
    """Answer of the desk's ``mirror`` (kernel_id, root, wire_key): where a directory is mirrored.

    It takes the place of the kernel's mirror before; only ``wire_key`` is let in.
    """

    address: str
    key: str  # Z85
    limit: int  # bytes that it may hold


class DeskDrained(TypedDict):
    """Home kernel to supervisor: what the drain brought home."""

    kernel_id: str
    result: Literal["done", "blocked"]
    blockers: list[Blocker]


#: Bus of gpulease.lab (Unix socket, mode 0600, JSON lines).  The kernel opens with
#: ``{"hello": kernel_id}`` and gets ``{"event": "snapshot", "leases": [...], "classes": [...]}``,
#: then ``{"event": "lease", "lease": ...}``, ``{"event": "classes", ...}`` and
#: ``{"event": "link", "up": bool}`` as they come.  Calls are
#: ``{"id": n, "call": name, "args": {...}}``, answered by ``{"id": n, "ok": ...}`` or
#: ``{"id": n, "problem": RFC 9457 object}``.  Calls: ``ask`` (AskBody -> LeaseView),
#: ``lease`` (lease_id -> LeaseView, as the service has it), ``end`` (lease_id, reason), ``keep``
#: (lease_id), ``connection`` (lease_id, client_key -> ConnectionView), ``leases``,
#: ``cell`` (busy: bool; no answer needed: which kernel ran a cell last).
#: A page's ask names no kernel: on the bus its ``kernel_id`` is the kernel that ran a cell last
#: when the lease became active.  A ``grant`` never goes over the bus.
BusCall = Literal["ask", "lease", "end", "keep", "connection", "leases", "cell"]


class AskBody(TypedDict):
    """Body of ``POST api/leases``."""

    gpu_class: NotRequired[str | None]  # None: the policy's default class
    count: NotRequired[int]
    seconds: NotRequired[float | None]  # --for: how long it is wanted
    server: NotRequired[str | None]  # a page names it; a server's token implies it
    user: NotRequired[str | None]  # admins only; else the token's user
    kernel_id: NotRequired[str | None]
    origin: NotRequired[str]
    in_quota_only: NotRequired[bool]


class AgentHolder(TypedDict):
    """One device in the hands of one container, as the node's kubelet says."""

    namespace: str
    pod: str
    container: str
    resource: str  # the extended resource, such as ``nvidia.com/gpu``; "" for a claim's device
    device: str  # GPU-..., GPU-...::3 (a replica), MIG-...; of a claim its name in the slice
    driver: NotRequired[str]  # of a claim's device: who publishes the slice
    pool: NotRequired[str]  # of a claim's device: the slice's pool


class AgentIncident(TypedDict):
    """A fault that a device reported; ``until`` is ``None`` while it lasts."""

    kind: str  # a key of ``policy.quarantine.KINDS``
    at: str
    until: str | None
    xid: NotRequired[int]


class AgentDevice(TypedDict):
    """One device of the node (a GPU or a MIG device) and what went wrong on it for 24 hours."""

    uuid: str
    parent: str  # the GPU of a MIG device, else ""
    index: int
    name: str
    memory: int  # bytes
    level: Literal["process", "device", "cells"]  # how finely its use can be attributed
    offered: bool  # the kubelet gives it out; False: its device plugin withdrew it
    incidents: list[AgentIncident]


class AgentSecond(TypedDict):
    """One device in one second.  At level ``process`` a pod that is not named used nothing."""

    at: str
    device: str  # AgentDevice.uuid
    use: float | None  # 0..1, the peak since the second before; None is a gap
    gap: NotRequired[str]  # why there is no word
    memory: NotRequired[int]  # bytes in use
    power: NotRequired[float]  # watts
    pods: NotRequired[dict[str, float]]  # pod UID -> 0..1, use by its processes
    others: NotRequired[float]  # 0..1, use by processes of the node that are in no pod
    unplaced: NotRequired[float]  # 0..1, use by processes that could not be placed


class AgentBatch(TypedDict):
    """Some seconds of one node.  ``holders`` is ``None`` while the kubelet does not answer."""

    sequence: int  # grows by one, over restarts too
    at: str
    devices: list[AgentDevice]
    holders: list[AgentHolder] | None
    seconds: list[AgentSecond]
    problem: str  # why there is no device, "" when there are some


class AgentPost(TypedDict):
    """Body of ``POST api/agents/batches``; which node it is from is told by the token alone.

    Answered by ``{"taken": n, "repeated": n, "now": ...}``: what was posted need not come again.
    """

    protocol: str
    run: str  # whose sequences these are; a ledger that was lost begins a new one
    sent: str  # the agent's clock
    batches: list[AgentBatch]
