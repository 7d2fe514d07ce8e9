"""What is on offer: pools of devices, the classes that draw on them, and their time-outs.

They are sections of the policy document.  A pool may be of *parts* of cards: then each of its
devices is such a part, and all parts of one lease are of one card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from gpulease.policy.forms import (
    HIDDEN,
    LISTED,
    As,
    Flag,
    FormError,
    Hidden,
    Line,
    Lines,
    Number,
    One,
    Section,
    Size,
    Whole,
    Zone,
    duration,
    whole,
)
from gpulease.policy.pods import POD, ClusterQueue, PodAsk
from gpulease.policy.states import DevicesBy, EvidenceLevel
from gpulease.texts import Said, Text

_UNUSED: Final = (
    7 * 86400.0, Text("7 days"), Text("an idle GPU would hardly ever be released")
)  # fmt: skip
_WAITED_FOR: Final = (86400.0, Text("1 day"), Text("others wait for the GPU meanwhile"))
_LEASED: Final = (366 * 86400.0, Text("366 days"), Text("no lease is granted for longer"))
_SOME: Final = 1e-3
_Unused = Annotated[float, duration(_SOME, *_UNUSED)]
_UnusedOrNone = Annotated[float, duration(0, *_UNUSED)]
_WaitedFor = Annotated[float, duration(_SOME, *_WAITED_FOR)]
_WaitedForOrNone = Annotated[float, duration(0, *_WAITED_FOR)]
_Leased = Annotated[float, duration(_SOME, *_LEASED)]


@dataclass(frozen=True)
class Elastic(Section):
    """How a pool grows: its nodes are added when lease pods wait for them.

    ``max`` is how many devices it may have at most, ``firm`` how many of them are always there:
    only these are promised to reservations, and none where ``spot``, for the cloud may take such a
    node back at short notice.  ``provision_time`` is what adding a node usually takes (seconds),
    ``max_pending`` how many lease pods may wait for nodes at once.
    """

    max: Annotated[One, Said("Devices that it may have at most.")]
    firm: Annotated[Whole, Said("Devices that are always there, for reservations.")] = 0
    provision_time: Annotated[float, duration(1), Said("How long adding a node usually takes.")] = (
        360.0
    )
    max_pending: Annotated[One, Said("Lease pods that may wait for nodes at once.")] = 10
    spot: Annotated[Flag, Said("The cloud may take its nodes back at short notice.")] = False

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


_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS: Final = re.compile(
    r"(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))?\s+"
    r"(?P<h1>\d\d):(?P<m1>[0-5]\d)-(?P<h2>\d\d):(?P<m2>[0-5]\d)",
    re.IGNORECASE,
)


def _read_hours(named: Mapping[str, int]) -> tuple[WarmHours, ...]:
    return tuple(_hours(name, pods) for name, pods in named.items())


def _hours(name: str, pods: int) -> WarmHours:
    if read := _HOURS.fullmatch(name.strip()):
        start, end = (int(read[h]) * 60 + int(read[m]) for h, m in (("h1", "m1"), ("h2", "m2")))
        first, last = read["first"].lower(), (read["last"] or read["first"]).lower()
        if first in _DAYS and last in _DAYS and start < end <= 24 * 60:
            begin, length = _DAYS.index(first), (_DAYS.index(last) - _DAYS.index(first)) % 7 + 1
            days = tuple(sorted((begin + each) % 7 for each in range(length)))
            return WarmHours(days, start, end, pods)
    example = Text("Write for example `Mon-Fri 08:00-18:00: 4`; a day ends at 24:00.")
    raise FormError(Text("'{hours}' is not a part of the week.", hours=name), example, (name,))


def _write_hours(all_: tuple[WarmHours, ...]) -> dict[str, int]:
    """Return hours as they are written; days that run over the week's end begin behind the gap."""
    found = {}
    for hours in all_:
        days = set(hours.days)
        first = next((each for each in hours.days if (each - 1) % 7 not in days), 0)
        last = (first + len(days) - 1) % 7
        start, end = (f"{each // 60:02d}:{each % 60:02d}" for each in (hours.start, hours.end))
        names = dict.fromkeys(_DAYS[each].capitalize() for each in (first, last))
        found[f"{'-'.join(names)} {start}-{end}"] = hours.pods
    return found


@dataclass(frozen=True)
class Warm(Section):
    """How many lease pods of a class stand ready ahead: in the hours named, and else ``pods``."""

    pods: Annotated[Whole, Said("Outside of the hours that are named.")] = 0
    hours: Annotated[
        tuple[WarmHours, ...],
        As(dict[str, Whole], _read_hours, _write_hours),
        Said("By hours of the week, such as Mon-Fri 08:00-18:00."),
    ] = ()
    zone: Annotated[Zone, Said("By whose clock the hours are.")] = "UTC"


#: Time-outs that are never longer than another one.
BOUNDED_BY = {"idle_under_pressure": "idle", "warning": "hard_length"}


@dataclass(frozen=True)
class TimeOuts(Section):
    """The durations (seconds) that govern a lease; a class may override the document's."""

    idle: Annotated[_Unused, Said("Idle time after which the holder is warned.")] = 300.0
    idle_under_pressure: Annotated[
        _Unused, Said("The same while somebody waits for what it holds.")
    ] = 120.0
    quiet: Annotated[
        _Unused, Said("Quiet or idle time together after which the holder is warned.")
    ] = 900.0
    warning: Annotated[_WaitedForOrNone, Said("From the warning to the drain.")] = 60.0
    warm_up: Annotated[
        _WaitedForOrNone,
        Said("The first part of a lease, which counts neither as idle nor as quiet."),
    ] = 120.0
    keep: Annotated[_UnusedOrNone, Said("How long one Keep lasts.")] = 900.0
    keeps: Annotated[Whole, Said("How many Keeps a lease has in a row.")] = 3
    claim: Annotated[
        _Unused, Said("How long a lease is kept for its first GPU cell, however short idle is.")
    ] = 180.0
    drain_max: Annotated[_WaitedFor, Said("The bound of a drain.")] = 60.0
    interrupt_grace: Annotated[
        _WaitedForOrNone,
        Said("From the interrupt of a running cell to its end, when the lease must go."),
    ] = 10.0
    minimum_runtime: Annotated[
        _UnusedOrNone,
        Said("How long a lease has before a reservation or an owning project can end it."),
    ] = 300.0
    hard_length: Annotated[_Leased, Said("The longest lease.")] = 28800.0
    start_max: Annotated[
        _WaitedFor, Said("A lease that is not connected after this goes back to the queue.")
    ] = 60.0
    unknown_hold: Annotated[_Unused, Said("How long a verdict is held while no data comes.")] = (
        300.0
    )
    busy_max: Annotated[
        _Leased,
        Said("After this, a lease that is busy by the companion's word alone counts as quiet."),
    ] = 10800.0
    wait: Annotated[_Unused, Said("How long a %%gpu cell waits; --wait changes it.")] = 300.0


@dataclass(frozen=True)
class Pool(Section):
    """Physical devices of one layout; pools are disjoint.

    ``spare`` is how many of them no reservation may take.  ``paused``: nothing of it is granted;
    what runs goes on.  ``elastic``: how it grows; ``None`` where its devices are what is there.
    ``parts``: number of parts of each card, each of them a device; 0 if it is not divided.
    """

    name: Hidden
    evidence: Annotated[
        EvidenceLevel, Said("How finely use is attributed; with cells, a running cell is use.")
    ] = EvidenceLevel.PROCESS
    spare: Annotated[Whole, Said("Devices that no reservation may take.")] = 0
    paused: Annotated[
        Flag, Said("Grant nothing of it; what runs keeps running, the queue is kept.")
    ] = False
    elastic: Annotated[
        Elastic | None, Said("The cluster adds nodes when lease pods wait for them.")
    ] = None
    parts: Annotated[
        int, whole(0, 100), Said("Into how many parts each card is divided; 0 is whole cards.")
    ] = 0


@dataclass(frozen=True)
class GPUClass(Section):
    """A kind of GPU share on offer.

    Where it is full the first class of its ``fallback`` with room serves, and none of theirs.
    In a pool of parts one GPU of it is ``parts`` of the ``card_parts`` of a card; a lease that
    allows it goes on with a number of them that is one of ``steps``.
    """

    name: Hidden
    pool: Annotated[Line, Said("The pool that it draws on.")]
    title: Annotated[Line, Said("What people read; the class's name if empty.")] = ""
    memory: Annotated[Size, Said("Memory of one device, such as 16GiB, for display.")] = 0
    max_count: Annotated[One, Said("The most devices of one request.")] = 1
    price: Annotated[Number, Said("GPU-hours that an hour of one device costs.")] = 1.0
    time_outs: Annotated[TimeOuts, Said("Its own time-outs; the rest are the document's.")] = field(
        default_factory=TimeOuts
    )
    fallback: Annotated[Lines, Said("Classes that serve where this one is full, in order.")] = ()
    pod: Annotated[
        Annotated[PodAsk, POD] | None, Said("How a Kubernetes cluster is asked for it.")
    ] = None
    warm: Annotated[Warm | None, Said("How many of its pods stand ready before anybody asks.")] = (
        None
    )
    parts: Annotated[One, Said("How many parts of a card one GPU of it is.")] = 0
    card_parts: Annotated[int, HIDDEN] = 0  # those of its pool
    steps: Annotated[
        tuple[One, ...], LISTED, Said("With how many parts a lease can keep running.")
    ] = ()
    devices_by: Annotated[
        DevicesBy, Said("How CUDA_VISIBLE_DEVICES names devices on one machine.")
    ] = DevicesBy.UUID

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


def percent(count: int, card_parts: int) -> int:
    """Return how much of a card so many of its parts are, in whole percent."""
    return round(100 * count / card_parts)


@dataclass(frozen=True)
class Device:
    """One device as capacity: what the provider shows now.

    ``lost`` is neither free nor used: nobody knows what runs on it.
    ``occupied_by`` names the lease whose processes still live there, or ``"foreign"``.
    ``node`` names the machine: a request for several devices is granted devices of one node.
    ``leaving``: the node takes nothing new and is about to go; its leases are warned.
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
