"""What is on offer: pools of devices, the classes that draw on them, and their time-outs.

Owns their shapes.  A pool may be of *parts* of cards: then each of its devices is such a part, and
all parts of one lease are of one card.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpulease.policy.pods import ClusterQueue, Elastic, PodAsk, Warm
from gpulease.policy.states import DevicesBy, EvidenceLevel


@dataclass(frozen=True)
class TimeOuts:
    """The durations (seconds) that govern a lease; a class may override the document's."""

    idle: float = 300.0
    idle_under_pressure: float = 120.0
    quiet: float = 900.0
    warning: float = 60.0
    warm_up: float = 120.0
    keep: float = 900.0
    keeps: int = 3
    claim: float = 180.0
    drain_max: float = 60.0
    interrupt_grace: float = 10.0
    minimum_runtime: float = 300.0
    hard_length: float = 28800.0
    start_max: float = 60.0
    unknown_hold: float = 300.0
    busy_max: float = 10800.0
    wait: float = 300.0


@dataclass(frozen=True)
class Pool:
    """Physical devices of one layout; pools are disjoint.

    ``spare`` is how many of them no reservation may take.  ``paused``: nothing of it is granted;
    what runs goes on.  ``elastic``: how it grows; ``None`` where its devices are what is there.
    ``parts``: into so many parts each card is divided, each of them a device; 0 is not at all.
    """

    name: str
    evidence: EvidenceLevel = EvidenceLevel.PROCESS
    spare: int = 0
    paused: bool = False
    elastic: Elastic | None = None
    parts: int = 0


@dataclass(frozen=True)
class GPUClass:
    """A kind of GPU share on offer.

    Where it is full the first class of its ``fallback`` with room serves, and none of theirs.
    In a pool of parts one GPU of it is ``parts`` of the ``card_parts`` of a card; a lease that
    allows it goes on with a number of them that is one of ``steps``.
    """

    name: str
    pool: str
    title: str = ""
    memory: int = 0
    max_count: int = 1
    price: float = 1.0
    time_outs: TimeOuts = field(default_factory=TimeOuts)
    fallback: tuple[str, ...] = ()  # classes that serve its requests, in order, when it is full
    pod: PodAsk | None = None  # how a cluster is asked for it; None is one whole card
    warm: Warm | None = None  # how many of its pods stand ready ahead; None is never any
    parts: int = 0  # of a card; 0 is whole devices
    card_parts: int = 0  # those of its pool
    steps: tuple[int, ...] = ()  # fewer parts with which a lease of it can go on, the most first
    devices_by: DevicesBy = DevicesBy.UUID

    @property
    def queue(self) -> ClusterQueue | None:
        """The cluster's own queue that admits its leases; ``None`` where our planner does."""
        return self.pod.queue if self.pod is not None else None

    @property
    def most(self) -> int:
        """The most devices of one request."""
        return self.parts or self.max_count

    @property
    def device_price(self) -> float:
        """What one device of its pool costs for an hour: a part of a card its part of the price."""
        return self.price / self.card_parts if self.card_parts else self.price

    def memory_of(self, count: int) -> int:
        """Return how much memory so many devices of it have (bytes)."""
        return self.memory * count // (self.parts or 1)


@dataclass(frozen=True)
class Device:
    """One device as capacity: what the provider shows now.

    ``lost`` is neither free nor used: nobody knows what runs on it.
    ``occupied_by`` names the lease whose processes still live there, or ``"foreign"``.
    ``node`` names the machine: a request for several devices is granted devices of one node.
    ``leaving``: the node takes nothing new and is about to go; whoever is there is warned.
    ``serves``: the classes of its pool that it can serve, ``None`` for all of them.
    ``compute`` is its CUDA capability, ``ecc`` whether its memory corrects errors; ``None`` is
    not known.  ``warm`` names the class of which a pod stands ready on it: it is free all the same.
    ``card`` names the card that it is one of ``card_parts`` of, "" where it is a whole device.
    """

    uuid: str
    pool: str
    name: str = ""
    memory: int = 0
    simulated: bool = False
    healthy: bool = True
    lost: bool = False
    occupied_by: str | None = None
    node: str = ""
    leaving: bool = False
    serves: tuple[str, ...] | None = None
    compute: tuple[int, int] | None = None
    ecc: bool | None = None
    warm: str = ""
    card: str = ""
    card_parts: int = 0

    @property
    def place(self) -> str:
        """Where the devices of one lease stand together: a card's parts, a machine's devices."""
        return self.card or self.node
