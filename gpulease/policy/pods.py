"""How a GPU class is asked for on a cluster: the sections ``pod``, ``warm`` and ``elastic``.

``providers.kubernetes.pod_resources`` turns an ask into what a pod's manifest says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Annotated, Final

from gpulease.policy.forms import (
    LARGEST,
    LISTED,
    As,
    Flag,
    Form,
    FormError,
    Image,
    Line,
    One,
    Section,
    Size,
    Whole,
    pattern,
    text,
    whole,
)
from gpulease.sizes import format_size, parse_size
from gpulease.texts import Said, Text

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


_LABEL: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_QUANTITY: Final = r"\d+(\.\d+)?(m|[KMGTPE]i?|k)?"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_COMPUTED: Final = ("cpu", "memory", "ephemeral-storage")
_Domain = Annotated[str, pattern(_DOMAIN)]
_Label = Annotated[str, pattern(_LABEL)]
_Compute = Annotated[str, pattern(r"\d{1,2}\.\d{1,2}")]


def _qualified(key: str) -> bool:
    domain, slash, name = key.rpartition("/")
    return bool(re.fullmatch(_LABEL, name)) and (not slash or bool(re.fullmatch(_DOMAIN, domain)))


def _label(name: str, value: str) -> None:
    if not _qualified(name):
        raise FormError(Text("'{name}' is not a valid label.", name=name), at=(name,))
    if value and not re.fullmatch(_LABEL, value):
        raise FormError(Text("'{value}' cannot be a label's value.", value=value), at=(name,))


def _annotation(name: str, _value: str) -> None:
    if not _qualified(name):
        raise FormError(Text("'{name}' is not a valid annotation.", name=name), at=(name,))
    if name.startswith("gpulease/"):
        raise FormError(Text("'{name}' is gpulease's own.", name=name), at=(name,))


def _extra_label(name: str, value: str) -> None:
    _label(name, value)
    if name.startswith(("gpulease/", "app.kubernetes.io/")):
        raise FormError(Text("'{name}' is gpulease's own.", name=name), at=(name,))


def _extended(name: str) -> None:
    domain, slash, _ = name.rpartition("/")
    if not _qualified(name) or not slash or domain.endswith("kubernetes.io"):
        raise FormError(Text("'{name}' is not an extended resource (domain/name).", name=name))


def _extra_resource(name: str, value: str) -> None:
    _extended(name)
    if not value.isdecimal() or int(value) > 2**53:
        raise FormError(
            Text(
                "'{value}' is not a whole number: extended resources are not divided.", value=value
            ),
            at=(name,),
        )


def _computed(name: str, value: str) -> None:
    if name not in _COMPUTED:
        names = ", ".join(_COMPUTED)
        raise FormError(
            Text("'{name}' does not belong here; use one of {names}.", name=name, names=names),
            at=(name,),
        )
    if not re.fullmatch(_QUANTITY, value):
        raise FormError(
            Text("'{value}' is not a quantity; write for example 500m or 8Gi.", value=value),
            at=(name,),
        )


def _checked(check: Callable[[str, str], None]) -> As:
    """Return the mark of a mapping of texts of which ``check`` refuses what is wrong."""

    def read(found: Mapping[str, str]) -> Pairs:
        for name, value in found.items():
            check(name, value)
        return tuple(found.items())

    return As(dict[str, Line], read, dict)


def _topology(key: str) -> None:
    if not _qualified(key):
        example = Text("Write for example resource.kubernetes.io/pcieRoot.")
        raise FormError(Text("'{text}' is not a valid label or attribute.", text=key), example)


def _product(name: str) -> None:
    if not re.fullmatch(_LABEL, name.replace(" ", "-")):
        raise FormError(Text("'{text}' is not a product name.", text=name))


@dataclass(frozen=True)
class QueueKeys(Section):
    """A cluster's queue as the document names it: by its engine."""

    kueue: Annotated[_Domain, Said("A LocalQueue of Kueue.")] = ""
    kai: Annotated[_Domain, Said("A leaf queue of KAI.")] = ""
    max_pending: Annotated[One, Said("Pods of the class that may wait there.")] = 20


def _queue(keys: QueueKeys) -> ClusterQueue:
    names = {engine: getattr(keys, engine) for engine in QueueEngine if getattr(keys, engine)}
    if len(names) != 1:
        step = Text("Write for example `queue: {example}`.", example="{kueue: students}")
        raise FormError(Text("it names no engine, or two."), step)
    ((engine, name),) = names.items()
    return ClusterQueue(engine, name, keys.max_pending)


def _queue_keys(queue: ClusterQueue) -> QueueKeys:
    kueue, kai = (queue.name if queue.engine is each else "" for each in QueueEngine)
    return QueueKeys(kueue, kai, queue.max_pending)


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
class Toleration:
    """One taint that lease pods bear; an empty ``value`` tolerates every value of the key."""

    key: str
    value: str = ""
    effect: str = ""  # "" is every effect


def _toleration(taint: str) -> Toleration:
    rest, _, effect = taint.partition(":")
    key, _, value = rest.partition("=")
    if not _qualified(key) or (value and not re.fullmatch(_LABEL, value)):
        message = Text(
            "'{text}' is not a taint; write key, key=value or key=value:NoSchedule.", text=taint
        )
        raise FormError(message)
    if effect not in ("", *_EFFECTS):
        names = ", ".join(_EFFECTS)
        raise FormError(Text("'{effect}' is not one of {names}.", effect=effect, names=names))
    return Toleration(key, value, effect)


def _taint(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.value else ""
    effect = f":{toleration.effect}" if toleration.effect else ""
    return f"{toleration.key}{value}{effect}"


@dataclass(frozen=True)
class Where(Section):
    """What the GPU must be, whatever node it is in; a zero or empty member demands nothing."""

    memory_min: Annotated[Size, Said("The least memory.")] = 0
    memory_max: Annotated[Size, Said("The most memory.")] = 0
    compute_min: Annotated[_Compute, Said('The least compute capability, as "8.0".')] = ""
    compute_max: Annotated[_Compute, Said("The highest compute capability.")] = ""
    products: Annotated[
        tuple[Annotated[str, text(_product)], ...],
        LISTED,
        Said("Names as the driver gives them; spaces and dashes are alike."),
    ] = ()


@dataclass(frozen=True)
class PodAsk(Section):
    """How a lease pod of one class asks for its GPU and what else it carries.

    ``slot_units`` differs from ``amount`` where a fraction asks for one replica but fills a card
    with others.  ``queue`` is ``None`` where our planner admits the pods.
    """

    kind: Annotated[AskKind, Said("How a pod asks for the GPU.")] = AskKind.DEVICE_PLUGIN
    resource: Annotated[
        str, text(_extended), Said("The extended resource; if empty, the kind's own.")
    ] = ""
    amount: Annotated[One, Said("Kind extra: how much of it one GPU asks for.")] = 1
    slot_units: Annotated[
        Whole, Said("How much of the resource one GPU takes in our count; 0 is amount.")
    ] = 0
    profile: Annotated[_Label, Said("The MIG profile, such as 1g.10gb.")] = ""
    strategy: Annotated[MIGStrategy, Said("The device plugin's MIG strategy.")] = MIGStrategy.MIXED
    sharing: Annotated[Sharing, Said("Kind shared: only nodes that share in this way.")] = (
        Sharing.ANY
    )
    several_shares: Annotated[Flag, Said("Kind shared: one lease may ask for several shares.")] = (
        False
    )
    compute_percent: Annotated[
        Whole, Said("MPS: how much of a card's compute each process may use, at most 100.")
    ] = 0
    device_class: Annotated[_Domain, Said("Kind dra: the DeviceClass; if empty, NVIDIA's own.")] = (
        ""
    )
    driver: Annotated[_Domain, Said("Kind dra: domain of the attributes; gpu.nvidia.com.")] = ""
    where: Annotated[Where, Said("What the GPU must be.")] = field(default_factory=Where)
    topology: Annotated[
        str,
        text(_topology),
        Said("Where GPUs of one lease should be alike: a node label, or with dra an attribute."),
    ] = ""
    node_selector: Annotated[Pairs, _checked(_label), Said("Labels that the node must have.")] = ()
    tolerations: Annotated[
        tuple[Annotated[Toleration, Form(_toleration, {"type": "string"}, _taint)], ...],
        LISTED,
        Said("Taints borne beside nvidia.com/gpu and gpulease/pool: key=value:NoSchedule."),
    ] = ()
    runtime_class: Annotated[_Domain, Said("The pod's runtime class.")] = ""
    image: Annotated[Image, Said("The pod's image; if empty, the server's.")] = ""
    priority_class: Annotated[_Domain, Said("The pod's priority class.")] = ""
    scheduler: Annotated[_Domain, Said("The scheduler that places the pod.")] = ""
    requests: Annotated[
        Pairs, _checked(_computed), Said("cpu, memory, ephemeral-storage; if empty, the server's.")
    ] = ()
    limits: Annotated[Pairs, _checked(_computed), Said("The same, as limits.")] = ()
    extra_resources: Annotated[
        Pairs, _checked(_extra_resource), Said("Further extended resources of the pod.")
    ] = ()
    extra_annotations: Annotated[
        Pairs, _checked(_annotation), Said("Further annotations of the pod.")
    ] = ()
    extra_labels: Annotated[Pairs, _checked(_extra_label), Said("Further labels of the pod.")] = ()
    queue: Annotated[
        Annotated[ClusterQueue, As(QueueKeys, _queue, _queue_keys)] | None,
        Said("A queue of the cluster's own that admits the pods."),
    ] = None


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


def _gibibytes(raw: str) -> int:
    size = parse_size(raw)
    if not 2**30 <= size <= LARGEST or size % 2**30:
        raise FormError(Text("it must be whole GiB."), Text("Write for example 8GiB."))
    return size


_Percent = Annotated[int, whole(0, 100)]


@dataclass(frozen=True)
class HAMi(Section):
    """A fraction of one card under HAMi."""

    memory_percent: Annotated[int, whole(1, 100), Said("Of the card's memory.")] = 100
    cores_percent: Annotated[_Percent, Said("Of its compute; 0 is no bound.")] = 0


@dataclass(frozen=True)
class GPUShare(Section):
    """Memory of one card under the gpushare scheduler extender."""

    memory: Annotated[
        int,
        Form(_gibibytes, {"type": ["string", "integer"]}, format_size),
        Said("Whole GiB of the card."),
    ]


@dataclass(frozen=True)
class PodSection(PodAsk):
    """An ask as the document has it: a preset stands for some of its members."""

    hami: Annotated[HAMi | None, Said("Instead of kind: a part of one card under HAMi.")] = None
    gpushare: Annotated[
        GPUShare | None, Said("Instead of kind: memory of one card under gpushare.")
    ] = None


def _whole_ask(section: PodSection) -> PodAsk:
    ask = PodAsk(**{each.name: getattr(section, each.name) for each in fields(PodAsk)})
    if section.hami is not None:
        preset = hami(section.hami.memory_percent, section.hami.cores_percent)
    elif section.gpushare is not None:
        preset = gpushare(section.gpushare.memory // 2**30)
    else:
        return ask
    extra = dict(preset.extra_resources) | dict(ask.extra_resources)
    units = ask.slot_units or preset.slot_units
    return replace(
        ask, kind=preset.kind, resource=preset.resource, amount=preset.amount, slot_units=units,
        extra_resources=tuple(extra.items()),
    )  # fmt: skip


#: The section ``pod`` of a class: presets are read as the asks that they stand for.
POD: Final = As(PodSection, _whole_ask, lambda ask: PodSection(**vars(ask)))
