"""Which devices nobody is given and for how long, and who takes too much of a card that is shared.

*Quarantine* follows from the faults that devices reported: which are the application's own, which
end a device's service for good, and how long a device stays out after one that passed (its
probation, doubled with each repeat).  Who reads the faults, and where the device is, does not
matter here.

*Beyond its share* of a card is a lease that holds more memory than its class has, by more than a
slack.  *It harms* when what is left of the card is less than what the other leases there have not
taken of their own shares; of several that are beyond theirs the one that is furthest beyond does.
Compute is no matter of these rules: cards are shared in turns, or MPS and MIG bound it.  Pure.
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


#: A share may be passed by this part of it: drivers and libraries round up.
SLACK = 0.05


@dataclass(frozen=True)
class Tenant:
    """One lease on one card.  ``share``, ``used`` and ``left`` (of the whole card) in bytes."""

    lease: str
    card: str
    share: int
    used: int
    left: int

    @property
    def beyond(self) -> int:
        """How much it holds beyond its share (bytes), 0 within the slack or without a share."""
        excess = self.used - self.share
        return excess if self.share and excess > SLACK * self.share else 0


@dataclass(frozen=True)
class Excess:
    """What a lease holds of a card (``used``) beyond its ``share``, and whether others lack it."""

    used: int
    share: int
    harms: bool


def excesses(tenants: Iterable[Tenant]) -> Mapping[str, Excess]:
    """Return what of each lease is beyond its share; of several cards the worst."""
    by_card: dict[str, list[Tenant]] = {}
    for tenant in tenants:
        by_card.setdefault(tenant.card, []).append(tenant)
    found: dict[str, Excess] = {}
    for there in by_card.values():
        worst = max(there, key=lambda each: (each.beyond, each.lease))
        lacking = sum(max(0, x.share - x.used) for x in there if x.lease != worst.lease)
        for tenant in there:
            if not tenant.beyond:
                continue
            harms = tenant is worst and lacking > tenant.left
            excess = Excess(tenant.used, tenant.share, harms)
            known = found.get(tenant.lease)
            if known is None or _grade(known) < _grade(excess):
                found[tenant.lease] = excess
    return found


def _grade(excess: Excess) -> tuple[bool, int]:
    return excess.harms, excess.used - excess.share
