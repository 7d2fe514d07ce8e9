"""Which devices nobody is given, and for how long, from the faults that they reported.

The rules on faults: which are the application's own, which end a device's service for good,
and how long a device stays out after one that passed (its probation, doubled with each repeat).
Who reads the faults, and where the device is, does not matter here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

#: Kind of incident -> the sentence for an admin.
KINDS: Final[Mapping[str, str]] = {
    "xid": "the driver reported Xid {xid}",
    "double_bit_ecc": "an uncorrectable memory error was found",
    "gpu_lost": "the device fell off the bus",
    "reset_required": "the device must be reset",
    "remap_failure": "the memory has no spare rows left",
    "retirement_failure": "a memory page could not be retired",
    "fatal_poison": "poisoned memory was consumed",
    "gpu_unavailable": "the driver gave the device up",
    "recovery_action": "the driver asks for a recovery of the device",
}
#: Kind of incident -> what an admin can do.
STEPS: Final[Mapping[str, str]] = {
    "gpu_lost": "It fell off the bus: drain and reboot the node.",
    "reset_required": "Drain the node, then run `nvidia-smi --gpu-reset` or reboot.",
    "recovery_action": "Drain the node, then look at `nvidia-smi -q` for the recovery action.",
    "remap_failure": "The card must be exchanged.",
    "retirement_failure": "The card must be exchanged.",
}
#: Xids of the application that ran, not of the device: a fault in user code is no fault of the GPU.
APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
#: With this Xid the driver says that a device is lost.
_OFF_THE_BUS: Final = 79
#: Only an exchange fixes these.
_FOR_GOOD: Final = frozenset({"remap_failure", "retirement_failure"})
#: Seconds a device stays out after its first fault.
PROBATION: Final = 600.0
#: From this many faults in ``MEMORY`` on it stays out until they are forgotten.
MOST: Final = 4
#: Seconds for which a fault is remembered.
MEMORY: Final = 86400.0
#: Reports of one fault come in bursts: those within this many seconds count once.
BURST: Final = 30.0


@dataclass(frozen=True)
class Incident:
    """One fault of one device.  ``until`` is ``None`` while it lasts."""

    kind: str
    at: datetime
    until: datetime | None = None
    xid: int | None = None

    @property
    def counts(self) -> bool:
        """Whether it speaks against the device at all."""
        return not (self.kind == "xid" and self.xid in APPLICATION_XIDS)

    @property
    def sentence(self) -> str:
        """What happened, for an admin."""
        return KINDS.get(self.kind, self.kind).format(xid=self.xid)

    @property
    def step(self) -> str:
        """What an admin can do, "" where time alone shows."""
        lost = self.kind == "xid" and self.xid == _OFF_THE_BUS
        return STEPS.get("gpu_lost" if lost else self.kind, "")


@dataclass(frozen=True)
class Condition:
    """Whether a device may be given out; ``until`` is ``None`` when no time can be told."""

    healthy: bool = True
    until: datetime | None = None
    repeats: int = 0
    sentence: str = ""
    step: str = ""


def judge(incidents: Iterable[Incident], now: datetime) -> Condition:
    """Return the condition of one device from what happened to it, in any order."""
    oldest = now - timedelta(seconds=MEMORY)
    known = sorted(
        (
            each
            for each in incidents
            if each.counts and (each.until is None or each.until > oldest or _for_good(each))
        ),
        key=lambda each: each.at,
    )
    if not known:
        return Condition()
    last = max(known, key=lambda each: (each.until is None, each.until or each.at))
    repeats = _episodes(known)
    lasting = [each for each in known if each.until is None or _for_good(each)]
    if lasting:
        return Condition(False, None, repeats, lasting[-1].sentence, lasting[-1].step)
    assert last.until is not None  # else it would be lasting
    until = last.until + timedelta(seconds=_probation(repeats))
    if until <= now:
        return Condition(True, None, repeats)
    return Condition(False, until, repeats, last.sentence, last.step)


def _probation(repeats: int) -> float:
    return MEMORY if repeats >= MOST else PROBATION * 2.0 ** (repeats - 1)


def _for_good(incident: Incident) -> bool:
    return incident.kind in _FOR_GOOD


def _episodes(known: list[Incident]) -> int:
    """Count the faults, those of one burst as one."""
    count, end = 0, None
    for each in known:
        if end is None or (each.at - end).total_seconds() > BURST:
            count += 1
        reached = each.until or each.at
        end = reached if end is None else max(end, reached)
    return count
