"""The fixed sets of words, and the actions that a plan consists of.

The words are states of a lease, why it waits or ends, what the evidence says.  Each kind of action
is a frozen dataclass: ``lifecycle`` applies it to a lease's record, and the planner decides when
each comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class LeaseState(StrEnum):
    """States of a lease; the transitions stand in ``policy.lifecycle``."""

    QUEUED = "queued"
    STARTING = "starting"
    ACTIVE = "active"
    WARNED = "warned"
    DRAINING = "draining"
    ENDED = "ended"


class EndReason(StrEnum):
    """Why a lease ended; exactly one on every ended lease."""

    RETURNED = "returned"
    IDLE = "idle"
    PREEMPTED = "preempted"
    EXPIRED = "expired"
    WINDOW_OVER = "window_over"
    WITHDRAWN = "withdrawn"
    DENIED = "denied"
    FAILED = "failed"
    SERVER_GONE = "server_gone"
    FORCED = "forced"


class Verdict(StrEnum):
    """What the evidence says about a lease; first match of ``policy.idleness`` wins."""

    BUSY = "busy"
    QUIET = "quiet"
    IDLE = "idle"
    UNKNOWN = "unknown"


class EvidenceLevel(StrEnum):
    """How finely a pool's devices can attribute use."""

    PROCESS = "process"
    DEVICE = "device"
    CELLS = "cells"


class DevicesBy(StrEnum):
    """How a lease names its devices in ``CUDA_VISIBLE_DEVICES``; the values are the document's."""

    UUID = "uuid"
    INDEX = "index"


class ClickRuns(StrEnum):
    """Which cells run on a GPU that was asked for by a click; the values are the document's."""

    AUTO = "auto"  # those that use a GPU library
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True)
class Shape:
    """What a lease becomes once its variables are copied back: a number of devices of a class.

    ``devices``: those that it keeps of its own, and free ones that are held for it.
    """

    gpu_class: str
    devices: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many devices it has then."""
        return len(self.devices)


@dataclass(frozen=True)
class Action:
    """One thing to do, with the reason that is recorded; the kinds are the subclasses.

    ``detail`` is what the provider says of it, for admins.
    """

    lease_id: str
    reason: str
    detail: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Start(Action):
    """Grant these devices and start the lease, as ``gpu_class`` where that is a fallback.

    They may be fewer than were asked for, where the request allows it: ``count`` of them, which
    says so too where the devices are not known yet (0: all of them).

    ``price`` is that of one device an hour, and holds for as long as the lease does.  ``image`` is
    that of the group in whose window it has a seat, "" for the class's.
    """

    devices: tuple[str, ...]
    gpu_class: str = ""
    price: float = 1.0
    pool: str = ""
    image: str = ""
    count: int = 0


@dataclass(frozen=True)
class Activate(Action):
    """The supervisor is there: the lease counts from now on, until ``ends`` at most.

    ``devices``: those that it really runs on, ``()`` for the granted ones.
    """

    devices: tuple[str, ...] = ()
    ends: datetime | None = None


@dataclass(frozen=True)
class Progress(Action):
    """A start reached another stage, which is the reason; ``devices`` as in ``Activate``."""

    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bind(Action):
    """Record the devices of a lease: where it really runs, or what is left for one that waits."""

    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Requeue(Action):
    """Back to the queue with the old ticket, not before ``not_before``.

    ``failure`` says whether the start counts as failed; a lost race for a device does not.
    """

    not_before: datetime
    failure: bool = True


@dataclass(frozen=True)
class Warn(Action):
    """Say that the lease will be taken at ``until`` for ``reason``, or what it ``becomes`` then."""

    until: datetime
    end_reason: EndReason
    nominated_for: str | None = None
    becomes: Shape | None = None


@dataclass(frozen=True)
class Clear(Action):
    """The warning is over: the lease is used again."""


@dataclass(frozen=True)
class Drain(Action):
    """Bring the variables home until ``until``; then the lease ends for ``end_reason``, or is what
    it ``becomes``.
    """

    until: datetime
    end_reason: EndReason
    park: bool
    nominated_for: str | None = None
    becomes: Shape | None = None


@dataclass(frozen=True)
class Reshape(Action):
    """Its variables are home: back to the queue as what it becomes, which is held for it."""


@dataclass(frozen=True)
class Resume(Action):
    """Back to active with what cannot leave: undrainable without pressure (once), or returned."""

    undrainable: bool = False


@dataclass(frozen=True)
class End(Action):
    """Stop what is left and free the devices.

    ``last_seen``: when something was heard of it last, where it died in between.
    """

    end_reason: EndReason
    last_seen: datetime | None = None


@dataclass(frozen=True)
class Wait(Action):
    """Still queued, but for another reason than was recorded."""


@dataclass(frozen=True)
class Nominate(Action):
    """Record whom a warned or draining lease is taken for (``None``: nobody any more)."""

    nominated_for: str | None


@dataclass(frozen=True)
class SetBack(Action):
    """Move every instant of a lease from ``first`` on back by so many seconds."""

    first: datetime
    seconds: float


@dataclass(frozen=True)
class Alert(Action):
    """Nothing to do to a lease: something an admin must know (``lease_id`` may be empty)."""

    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)
