"""How a GPU class is asked for on a cluster: the nouns of a class's ``pod:`` section.

Owns their shapes and the presets that are nothing but such an ask.  Refuses to know manifests:
``providers.kubernetes.asks`` turns an ask into a pod's words, ``policy.pod_section`` reads YAML.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

#: A small mapping, in the order of the document, that can be compared and hashed.
Pairs = tuple[tuple[str, str], ...]


class AskKind(StrEnum):
    """By which of Kubernetes's ways a pod asks for a GPU share."""

    DEVICE_PLUGIN = "device_plugin"  # whole cards as an extended resource
    SHARED = "shared"  # replicas of a card: time slices or MPS
    MIG = "mig"  # a slice cut by the hardware
    DRA = "dra"  # a resource claim
    EXTRA = "extra"  # whatever else a third party's scheduler reads: fractions, memory


class MIGStrategy(StrEnum):
    """How NVIDIA's device plugin shows MIG slices."""

    MIXED = "mixed"  # each profile is a resource of its own
    SINGLE = "single"  # every slice of the node is an ``nvidia.com/gpu``


class Sharing(StrEnum):
    """How the replicas of a card share it; the values are those of the node's label."""

    ANY = ""
    TIME_SLICING = "time-slicing"
    MPS = "mps"


class QueueEngine(StrEnum):
    """Who admits a class's pods in place of our planner; the values are the document's keys."""

    KUEUE = "kueue"
    KAI = "kai"


@dataclass(frozen=True)
class ClusterQueue:
    """A queue of the cluster's own: it orders, borrows and preempts, our planner does not.

    ``name`` is of a LocalQueue in the servers' namespace (Kueue) or of a leaf queue (KAI).
    ``max_pending`` is how many pods of the class may wait there at once.
    """

    engine: QueueEngine
    name: str
    max_pending: int = 20


@dataclass(frozen=True)
class Elastic:
    """How a pool grows: its nodes are added when lease pods wait for them.

    ``max`` is how many devices it may have at most, ``firm`` how many of them are always there:
    only these are promised to reservations, and none where ``spot``, for the cloud may take such a
    node back at short notice.  ``provision_time`` is what adding a node usually takes (seconds),
    ``max_pending`` how many lease pods may wait for nodes at once.
    """

    max: int
    firm: int = 0
    provision_time: float = 360.0
    max_pending: int = 10
    spot: bool = False

    @property
    def promised(self) -> int:
        """How many devices reservations may count on."""
        return 0 if self.spot else self.firm


@dataclass(frozen=True)
class WarmHours:
    """Hours of some days of the week (0 is Monday), in minutes since midnight of a wall clock."""

    days: tuple[int, ...]
    start: int
    end: int  # not among them
    pods: int


@dataclass(frozen=True)
class Warm:
    """How many lease pods of a class stand ready ahead: in the hours named, and else ``pods``."""

    pods: int = 0
    hours: tuple[WarmHours, ...] = ()
    zone: str = "UTC"


@dataclass(frozen=True)
class Toleration:
    """One taint that lease pods bear; an empty ``value`` tolerates every value of the key."""

    key: str
    value: str = ""
    effect: str = ""  # "" is every effect


@dataclass(frozen=True)
class Where:
    """What the GPU must be, whatever node it is in; a zero or empty member demands nothing."""

    memory_min: int = 0  # bytes
    memory_max: int = 0
    compute_min: str = ""  # CUDA compute capability, as "8.0"
    compute_max: str = ""
    products: tuple[str, ...] = ()  # as the driver names them; spaces and dashes are alike


@dataclass(frozen=True)
class PodAsk:
    """How a lease pod of one class asks for its GPU and what else it carries.

    ``resource`` "" is the kind's own: ``nvidia.com/gpu``, ``nvidia.com/mig-PROFILE``, none for
    DRA.  ``amount`` is how much of it one lease device asks for; ``slot_units`` is how much of a
    node's allocatable it takes in our count (0: as much as it asks for), which differs where a
    fraction asks for one replica but fills a card with others.  ``topology`` is where
    several cards of one lease should be alike: a node label (preferred) or, with DRA, a device
    attribute (demanded).  ``compute_percent`` is the part of a card's compute that each process
    may use under MPS, 0 what its server gives.  ``image`` "" follows the server's
    own.  ``requests`` and ``limits`` are of CPU, memory and ephemeral storage; empty ones follow
    the server's own.  ``queue`` is the cluster's own queue that admits the pods, ``None`` where our
    planner does.
    """

    kind: AskKind = AskKind.DEVICE_PLUGIN
    resource: str = ""
    amount: int = 1
    slot_units: int = 0
    profile: str = ""
    strategy: MIGStrategy = MIGStrategy.MIXED
    sharing: Sharing = Sharing.ANY
    several_shares: bool = False
    compute_percent: int = 0
    device_class: str = ""
    driver: str = ""
    where: Where = field(default_factory=Where)
    topology: str = ""
    node_selector: Pairs = ()
    tolerations: tuple[Toleration, ...] = ()
    runtime_class: str = ""
    image: str = ""
    priority_class: str = ""
    scheduler: str = ""
    requests: Pairs = ()
    limits: Pairs = ()
    extra_resources: Pairs = ()
    extra_annotations: Pairs = ()
    extra_labels: Pairs = ()
    queue: ClusterQueue | None = None


GPU_RESOURCE: Final = "nvidia.com/gpu"
SHARED_RESOURCE: Final = "nvidia.com/gpu.shared"
DRA_DRIVER: Final = "gpu.nvidia.com"
MIG_DEVICE_CLASS: Final = "mig.nvidia.com"
#: HAMi shows each card as so many ``nvidia.com/gpu`` unless its ``deviceSplitCount`` says other.
HAMI_SPLIT: Final = 10
GPUSHARE_RESOURCE: Final = "aliyun.com/gpu-mem"


def hami(memory_percent: int, cores_percent: int) -> PodAsk:
    """Return the ask for a fraction of one card under HAMi.

    Args:
        memory_percent: of the card's memory, 1 to 100.
        cores_percent: of the card's compute, 0 (no bound) to 100.
    """
    fits = max(1, min(HAMI_SPLIT, 100 // max(memory_percent, cores_percent)))
    return PodAsk(
        AskKind.EXTRA,
        resource=GPU_RESOURCE,
        slot_units=HAMI_SPLIT // fits,
        extra_resources=(
            ("nvidia.com/gpumem-percentage", str(memory_percent)),
            ("nvidia.com/gpucores", str(cores_percent)),
        ),
    )


_PERCENT: Final = ("nvidia.com/gpumem-percentage", "nvidia.com/gpucores")


def is_hami(ask: PodAsk) -> bool:
    """Whether an ask is for a fraction of a card under HAMi."""
    return ask.resource == GPU_RESOURCE and _PERCENT[0] in dict(ask.extra_resources)


def hami_whole(ask: PodAsk) -> bool:
    """Whether an ask under HAMi says no part: all memory, and no bound of compute."""
    said = dict(ask.extra_resources)
    return tuple(said.get(each) for each in _PERCENT) == ("100", "0")


def of_card(ask: PodAsk, percent: int) -> PodAsk:
    """Return an ask under HAMi for so much of one card's memory and compute."""
    said = dict(ask.extra_resources) | dict.fromkeys(_PERCENT, str(percent))
    return replace(ask, extra_resources=tuple(said.items()))


def gpushare(memory: int) -> PodAsk:
    """Return the ask for so many GiB of one card under the gpushare scheduler extender."""
    return PodAsk(AskKind.EXTRA, resource=GPUSHARE_RESOURCE, amount=memory)


def resource_of(ask: PodAsk) -> str:
    """Return the extended resource that is asked for and counted; "" for a DRA claim."""
    if ask.resource or ask.kind is AskKind.DRA:
        return ask.resource
    if ask.kind is AskKind.MIG and ask.strategy is MIGStrategy.MIXED:
        return f"nvidia.com/mig-{ask.profile}"
    return "" if ask.kind is AskKind.EXTRA else GPU_RESOURCE


def device_class_of(ask: PodAsk) -> str:
    """Return the DeviceClass of a DRA ask: NVIDIA's for cards or for MIG slices by default."""
    return ask.device_class or (MIG_DEVICE_CLASS if ask.profile else DRA_DRIVER)


def ask_for(resource: str, product: str) -> PodAsk:
    """Return the ask of a class that is made from what a cluster shows.

    Args:
        resource: the extended resource that was found, or a driver of claims.
        product: what feature discovery calls the model; "" where it does not run.
    """
    where = Where(products=(product.removesuffix("-SHARED"),) if product else ())
    if resource == SHARED_RESOURCE or (resource == GPU_RESOURCE and product.endswith("-SHARED")):
        own = resource if resource == SHARED_RESOURCE else ""
        return PodAsk(AskKind.SHARED, resource=own, where=where)
    profile = resource.removeprefix("nvidia.com/mig-")
    if profile != resource:
        return PodAsk(AskKind.MIG, profile=profile, where=where)
    return PodAsk(resource="" if resource == GPU_RESOURCE else resource, where=where)


def slot_units_of(ask: PodAsk) -> int:
    """Return how much of the resource in a node's allocatable makes one slot."""
    return ask.slot_units or ask.amount
