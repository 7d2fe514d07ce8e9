"""The Provider ports: where leases run.

``Provider`` is what every place does.  ``ServerStarted`` comes to it where the notebook server
starts the companion (this machine), ``AgentReports`` where agents on the nodes tell of the devices
(a cluster).  None of them decides: they do what the caller asks and show what they see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpulease.gpus.base import GPUInfo, Sample
from gpulease.policy.capacity import ReadyPods
from gpulease.policy.model import Bound, Device, GPUClass, Lease, Observed
from gpulease.protocol.agents import AgentBatch
from gpulease.protocol.reports import Activity
from gpulease.protocol.service import GrantView
from gpulease.protocol.supervisor import ToSupervisor


@dataclass(frozen=True)
class LinkState:
    """What the supervisor channel of one lease shows now."""

    attempt: int
    connected: bool
    pid: int | None = None
    drained: str = ""  # "", done, blocked, parked: the answer to the present drain
    in_use: bool = False  # some home kernel holds a connection
    bye: str = ""  # why the supervisor said that it ends, "" while it has not
    account: int | None = None  # user id of its process, as this machine's kernel says; if known


class SupervisorLink(Protocol):
    """The service's end of the supervisor channels, as a provider sees it."""

    def state(self, lease_id: str) -> LinkState | None:
        """Called by ``observe``; ``None`` when no supervisor of this lease ever said hello."""

    def send(self, lease_id: str, message: ToSupervisor) -> bool:
        """Called by ``stop``; false when no supervisor is connected."""

    def cut(self, lease_id: str) -> None:
        """Called by ``stop`` when a supervisor keeps running after a request to end."""


@dataclass(frozen=True)
class SupervisorReport:
    """What a notebook server says of a companion supervisor that it started."""

    lease_id: str
    attempt: int
    state: str  # started | failed | exited
    detail: str = ""
    pids: tuple[int, ...] = ()
    account: int | None = None  # user id of the server, as this machine's kernel says; if known


class ServerStarted(Protocol):
    """A place whose companions are started by the notebook servers themselves."""

    def grant(self, lease: Lease) -> GrantView | None:
        """Called when the server is notified of its lease; ``None`` when nothing is to be sent."""

    def report(self, report: SupervisorReport) -> None:
        """Called when the lease's own server reports on a supervisor that it started."""

    def heard(self, lease: Lease, samples: Sequence[Activity]) -> None:
        """Called with each batch of activity that a lease's supervisor sent."""

    def put_back(self, lease_id: str) -> bool:
        """Called when an admin gives the devices of a lease that is over free, whatever is left.

        Returns False where nothing of it is left, or it is still being ended.
        """


#: Tells a pod that stood ready what its lease's own manifest would have said: its environment.
Told = Callable[[Mapping[str, str]], None]


class WarmPods(Protocol):
    """A place where pods stand ready before it is known whose they will be."""

    async def proves(self, token: str) -> str:
        """Called when such a pod opens its channel: which one it is, "" for none of them.

        Raises:
            OSError: the token cannot be checked at present.
        """

    def ready(self, pod: str, tell: Told) -> None:
        """Called when a pod that was proved has imported all it needs; again after each break."""

    def lost(self, pod: str, tell: Told) -> None:
        """Called when its channel is over."""

    def keep(self, standing: ReadyPods, devices: Sequence[Device]) -> None:
        """Called after each plan: make what is lacking, let go what is too much or in the way.

        Args:
            standing: what should stand ready.
            devices: as they were shown last.
        """

    def places(self) -> Mapping[str, Sequence[str]]:
        """Called for the map of devices: by node, the class of each pod that is ready there."""

    def seconds(self) -> Mapping[str, float]:
        """Called each minute: for how long devices were held by them since, by class."""


class AgentReports(Protocol):
    """A place whose devices are read by agents on its nodes."""

    async def agent_node(self, token: str) -> str | None:
        """Called when a node agent posts: the node that its token is bound to, ``None`` if none.

        Raises:
            OSError: the token cannot be checked at present.
        """

    def agent_batch(self, node: str, batch: AgentBatch) -> None:
        """Called with each batch of the agent that was proved to be on ``node``."""

    def node_leaves(self, node: str) -> bool:
        """Called with each post: the node takes nothing new, for it goes or is worked on."""


class Provider(Protocol):
    """A place where leases run.

    The reconcile loop starts, stops and observes; ``Views`` and ``health`` read; the supervisor
    channel asks ``rank_of``; the service's clock asks ``inventory`` and ``sample``.  Every method
    is idempotent: after a crash the loop calls again with the same lease, and nothing happens
    twice.
    """

    name: str
    #: Seconds for which it keeps in mind that somebody's home would not attach; 0: homes are local.
    home_memory: float
    #: Whether machines are added when leases wait for them, where the policy says so.
    grows: bool

    @property
    def several_nodes(self) -> bool:
        """Whether a request may be for several nodes now."""

    @property
    def server_started(self) -> ServerStarted | None:
        """What the notebook servers are told and tell; ``None`` where they start no companion."""

    @property
    def agent_reports(self) -> AgentReports | None:
        """What takes the reports of node agents; ``None`` where there are no agents."""

    @property
    def warm_pods(self) -> WarmPods | None:
        """The pods that stand ready; ``None`` where there are no pods."""

    async def open(self) -> None:
        """Called once before the first plan; returns when ``devices`` can be trusted."""

    async def close(self) -> None:
        """Called at shutdown; running leases are left running."""

    async def devices(self) -> Sequence[Device]:
        """Called before each plan: every device, with what occupies it now.

        Raises:
            OSError: the capacity cannot be known at present; the loop grants and reclaims nothing.
        """

    def bounds(self, requests: Sequence[Lease]) -> Sequence[Bound]:
        """Called before each plan: what beside devices bounds the start of those that wait."""

    def preferred_node(self, lease: Lease) -> str:
        """Called before each plan for a waiting request: the node that is better than others.

        It is the server's own, where the home can be mounted only there; "" for any.
        """

    def image(self, gpu_class: GPUClass, course: str) -> str:
        """Called for an ask: the image that companions would run in, "" for the notebook's own.

        Args:
            course: the image of the course whose seat it is, "" for none.
        """

    async def start(self, lease: Lease) -> None:
        """Called after the intent ``starting`` is stored: begin to start this attempt."""

    async def stop(self, lease: Lease) -> None:
        """Called until ``observe`` no longer shows the lease: end every process of it."""

    async def observe(self) -> Sequence[Observed]:
        """Called before each plan: every lease this provider still shows, known or not."""

    async def rank_of(self, lease: Lease, token: str) -> int | None:
        """Called when somebody opens a lease's supervisor channel: which of its nodes is it?

        Args:
            lease: as it stands now; a token of another attempt of it proves nothing.
            token: what the stranger sent; anything at all.

        Returns:
            The node's rank, 0 where the lease has one; ``None`` for whoever is none of them.

        Raises:
            GPULeaseError: ``cannot_prove`` (503) while nobody can tell; the supervisor tries again.
        """

    async def inventory(self) -> Sequence[GPUInfo]:
        """Called at start and for views: every device as its driver describes it."""

    async def sample(self) -> Sequence[Sample]:
        """Called once a second: the use of each device; gaps where there is no word."""

    def recall_home(self, user: str, why: str, at: datetime) -> None:
        """Called before the first round: this home would not attach then, by the store's record."""

    def limits(self) -> Sequence[str]:
        """Called by ``health``: devices whose use cannot be measured, which is no fault."""

    def problem(self) -> str:
        """Called by ``health``: why there is no device or which fail, "" when all is well."""
