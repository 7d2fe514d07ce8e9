"""The first step of a round: what the provider shows, and what that says of each lease's use.

Two sources are brought together: the devices (the provider's probe, 1 Hz) and the supervisor (what
lives in the lease).  Verdicts are ``policy``'s; nothing is ended here.  Single readings are lost
with the process: after a restart the windows are empty, and what nobody watched counts for nothing.
Each change of verdict and each minute of evidence reaches the store, if not now then with a later
look, with each lease's sums over its whole life.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from gpulease.errors import GPULeaseError
from gpulease.gpus.base import Sample, Tenancy
from gpulease.policy import idleness, quarantine
from gpulease.policy.capacity import with_drained
from gpulease.policy.idleness import ActivitySample, DeviceSample, IdleState
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import (
    Device,
    Evidence,
    EvidenceLevel,
    Lease,
    LeaseState,
    Observed,
    PolicyDocument,
    Verdict,
)
from gpulease.policy.quarantine import Excess, Tenant
from gpulease.protocol.reports import Activity
from gpulease.providers.base import Provider
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.policies import Policies
from gpulease.service.metrics import Metrics
from gpulease.store import EvidenceMinute, VerdictChange, writing

_WATCHED = frozenset({LeaseState.ACTIVE, LeaseState.WARNED, LeaseState.DRAINING})
#: Samples of a supervisor whose clock runs ahead are taken as of now.
_AHEAD = timedelta(seconds=1)
#: A device sample and a mark of our own transfers this near speak of the same second.
_SAME_SECOND = timedelta(seconds=0.75)


#: A lease's memory is told in whole pieces of this (bytes), so that it is often the same.
_PIECE = 64 * 2**20
#: A device of which no sample came for so long is not there any more.
_UNREAD = timedelta(minutes=10)


class EvidenceCollector:
    """The evidence of all leases."""

    def __init__(self) -> None:
        self._states: dict[str, IdleState] = {}
        self._attempts: dict[str, int] = {}
        self._activity: dict[str, list[ActivitySample]] = defaultdict(list)
        self._devices: dict[str, list[DeviceSample]] = defaultdict(list)
        self._ours: dict[str, list[datetime]] = defaultdict(list)
        self._coarse: dict[str, datetime] = {}  # device -> when its use could not be told apart
        self._proved: dict[str, datetime] = {}  # device -> when it was used, beyond doubt
        self.gaps: dict[str, str] = {}  # device -> why its last sample is missing
        self._sampled: dict[str, datetime] = {}  # device -> when it was read last
        self._tenancies: dict[str, tuple[datetime, Tenancy]] = {}  # device -> when, and its part
        self._memory: dict[str, tuple[datetime, int]] = {}  # device -> when, and bytes in use
        self._harms: dict[str, datetime] = {}  # lease -> since when others lack what it took

    def hear(self, lease_id: str, samples: Iterable[Activity], now: datetime | None = None) -> None:
        """Take what a supervisor says lives in its lease."""
        now = now or datetime.now(UTC)
        for sample in samples:
            at = min(datetime.fromisoformat(sample["at"]), now + _AHEAD)
            if sample["transfers"] and not sample["cells"] and sample["use"] <= idleness.USE:
                self._ours[lease_id].append(at)
            self._activity[lease_id].append(
                ActivitySample(
                    at,
                    cells=sample["cells"],
                    threads=sample["threads"],
                    processes=sample["processes"],
                    use=sample["use"],
                    tasks=sample.get("tasks", 0),
                    used=sample.get("used", False),
                )
            )

    def sampled(self, samples: Sequence[Sample]) -> None:
        """Take one round of the devices' probe."""
        for sample in samples:
            self._sampled[sample.uuid] = sample.at
            self._devices[sample.uuid].append(DeviceSample(sample.at, sample.utilisation))
            if sample.memory_used is not None:
                self._memory[sample.uuid] = (sample.at, sample.memory_used)
            if sample.tenancy is not None:
                self._tenancies[sample.uuid] = (sample.at, sample.tenancy)
            if sample.level is EvidenceLevel.CELLS:
                self._coarse[sample.uuid] = sample.at
            elif (sample.utilisation or 0.0) > idleness.USE:
                self._proved[sample.uuid] = sample.at
            if sample.gap and sample.level is not EvidenceLevel.CELLS:
                self.gaps[sample.uuid] = sample.gap
            else:
                self.gaps.pop(sample.uuid, None)

    def judge(
        self,
        leases: Iterable[Lease],
        policy: PolicyDocument,
        now: datetime,
        simulated: Container[str] = (),
    ) -> Mapping[str, Evidence]:
        """Return the evidence of each watched lease at ``now``; forget the others.

        ``simulated``: the devices of which nobody but the lease's own companion tells.
        """
        watched = [lease for lease in leases if lease.state in _WATCHED]
        self._forget({lease.id for lease in watched})
        levels = _levels(policy)
        for lease in watched:
            state = self._states.get(lease.id)
            if state is None or self._attempts.get(lease.id) != lease.attempt:
                state = idleness.begin(now)
                self._attempts[lease.id] = lease.attempt
            self._states[lease.id] = idleness.advance(
                state,
                self._use_of(lease),
                self._activity.pop(lease.id, []),
                now,
                time_outs=time_outs_of(policy, lease),
                active_since=lease.active_since,
                level=self._level_of(lease, levels, now),
                simulated=any(uuid in simulated for uuid in lease.devices),
            )
        self._devices.clear()
        self._forget_devices(now)
        found = {lease.id: self._states[lease.id].evidence for lease in watched}
        for lease_id, excess in self._excesses(watched, policy, now).items():
            found[lease_id] = replace(
                found[lease_id],
                taken=excess.used // _PIECE * _PIECE,
                harms_since=self._harms.get(lease_id),
            )
        return found

    def _excesses(
        self, watched: Iterable[Lease], policy: PolicyDocument, now: datetime
    ) -> Mapping[str, Excess]:
        """Return what leases hold of shared cards beyond their class, and keep since when it harms.

        A card of which nothing was told of late says nothing: what it said before counts anew then.
        """
        tenants: dict[tuple[str, str], Tenant] = {}
        for lease in watched:
            gpu_class = policy.by_name.get(lease.gpu_class)
            share = gpu_class.memory_of(1) if gpu_class is not None else 0
            for _, told in (self._tenancies[u] for u in lease.devices if u in self._tenancies):
                known = tenants.get((lease.id, told.card))
                whole = share + (known.share if known is not None else 0)
                tenant = Tenant(lease.id, told.card, whole, told.used, told.left)
                tenants[lease.id, told.card] = tenant
        found = quarantine.excesses(tenants.values()) if tenants else {}
        harming = {lease_id for lease_id, excess in found.items() if excess.harms}
        self._harms = {lease_id: self._harms.get(lease_id, now) for lease_id in harming}
        return found

    def memory_used(self, lease: Lease) -> int | None:
        """Return how much memory a lease holds of its devices (bytes), in whole pieces.

        ``None`` while one of them does not tell it, and where it has none yet or any more.
        """
        held = [self._memory.get(uuid) for uuid in lease.devices]
        if lease.state not in _WATCHED or not held:
            return None
        known = [size for found in held if found is not None for _, size in (found,)]
        return sum(known) // _PIECE * _PIECE if len(known) == len(held) else None

    def _level_of(
        self, lease: Lease, levels: Mapping[str, EvidenceLevel], now: datetime
    ) -> EvidenceLevel:
        """Return the pool's level, or ``cells`` while the devices' use cannot be told apart.

        What somebody else may have used protects nobody; what this lease used for sure does.
        """

        def lately(seen: Mapping[str, datetime]) -> bool:
            window = timedelta(seconds=idleness.WINDOW)
            return any(uuid in seen and now - seen[uuid] < window for uuid in lease.devices)

        declared = levels.get(lease.gpu_class, EvidenceLevel.PROCESS)
        doubtful = lately(self._coarse) and not lately(self._proved)
        return EvidenceLevel.CELLS if doubtful else declared

    def _use_of(self, lease: Lease) -> list[DeviceSample]:
        """Return the devices' samples; what we moved ourselves while no code ran is no use."""
        ours = self._ours.pop(lease.id, [])
        return [
            replace(sample, utilisation=0.0)
            if sample.utilisation and any(abs(sample.at - at) <= _SAME_SECOND for at in ours)
            else sample
            for uuid in lease.devices
            for sample in self._devices[uuid]
        ]

    def _forget(self, kept: set[str]) -> None:
        for known in (self._states, self._activity, self._attempts, self._ours):
            for lease_id in known.keys() - kept:
                del known[lease_id]

    def _forget_devices(self, now: datetime) -> None:
        """Drop what is told of devices that are read no more: nodes come and go."""
        window = timedelta(seconds=idleness.WINDOW)
        for seen in (self._coarse, self._proved):
            for uuid in [uuid for uuid, at in seen.items() if now - at >= window]:
                del seen[uuid]
        for uuid in [u for u, (at, _) in self._tenancies.items() if now - at >= window]:
            del self._tenancies[uuid]
        for uuid in [u for u, (at, _) in self._memory.items() if now - at >= window]:
            del self._memory[uuid]
        for uuid in [uuid for uuid, at in self._sampled.items() if now - at >= _UNREAD]:
            del self._sampled[uuid]
            self.gaps.pop(uuid, None)


def _levels(policy: PolicyDocument) -> dict[str, EvidenceLevel]:
    pools = {pool.name: pool.evidence for pool in policy.pools}
    return {each.name: pools.get(each.pool, EvidenceLevel.PROCESS) for each in policy.classes}


_MINUTE = timedelta(minutes=1)
#: Between two readings that are kept; a reading is the highest use of so long a time.
_BETWEEN = timedelta(seconds=10)
#: So many are kept: ten minutes.
_KEPT = 60
#: Seconds of a lease below which its share says nothing.
_ENOUGH = 10.0


def busy_share(busy: float, seconds: float) -> float | None:
    """Return the busy share of so many watched seconds; ``None`` when they are too few."""
    return busy / seconds if seconds >= _ENOUGH else None


class Minutes:
    """Adds up the time between rounds."""

    def __init__(self) -> None:
        self._last: datetime | None = None
        self._seconds: dict[tuple[str, datetime], dict[str, float]] = {}
        self._peaks: dict[tuple[str, datetime], float] = {}
        self._sums: dict[str, tuple[float, float]] = {}  # lease -> seconds busy, seconds in all

    def begin(self, sums: Mapping[str, tuple[float, float]]) -> None:
        """Go on from what is stored: seconds busy and seconds in all, by lease."""
        self._sums = dict(sums)

    def busy_share(self, lease_id: str) -> float | None:
        """Return the share of its time that a lease was busy; ``None`` when it is too short."""
        return busy_share(*self._sums.get(lease_id, (0.0, 0.0)))

    def forget(self, kept: Container[str]) -> None:
        """Drop the sums of leases that are remembered no more."""
        for lease_id in [each for each in self._sums if each not in kept]:
            del self._sums[lease_id]

    def add(self, evidence: Mapping[str, Evidence], now: datetime) -> None:
        """Count the time since the last round for each lease's present verdict."""
        last, self._last = self._last, now
        if last is None or now <= last:
            return
        # A round that was late does not make its verdict hold for the whole pause.
        passed = min((now - last), _MINUTE).total_seconds()
        minute = now.replace(second=0, microsecond=0)
        for lease_id, each in evidence.items():
            key = (lease_id, minute)
            seconds = self._seconds.setdefault(key, {})
            seconds[each.verdict.value] = seconds.get(each.verdict.value, 0.0) + passed
            busy, total = self._sums.get(lease_id, (0.0, 0.0))
            used = passed if each.verdict is Verdict.BUSY else 0.0
            self._sums[lease_id] = (busy + used, total + passed)
            if each.utilisation is not None:
                self._peaks[key] = max(self._peaks.get(key, 0.0), each.utilisation)

    def due(self, now: datetime) -> list[EvidenceMinute]:
        """Return the minutes that are over; they stay until ``written`` is called."""
        minute = now.replace(second=0, microsecond=0)
        return [
            EvidenceMinute(lease_id, at, peak=self._peaks.get((lease_id, at)), **seconds)
            for (lease_id, at), seconds in self._seconds.items()
            if at < minute
        ]

    def written(self, minutes: list[EvidenceMinute]) -> None:
        """Forget minutes that the store took."""
        for each in minutes:
            self._seconds.pop((each.lease_id, each.minute), None)
            self._peaks.pop((each.lease_id, each.minute), None)


class Reading(NamedTuple):
    """The use of a lease's GPUs, 0 to 1, and their memory in bytes; ``None`` is not known."""

    at: datetime
    utilisation: float | None
    memory_used: int | None


class Readings:
    """Keeps the readings of the last ten minutes by lease."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Reading]] = {}

    def of(self, lease_id: str) -> tuple[Reading, ...]:
        """Return the readings of one lease, oldest first."""
        return tuple(self._of.get(lease_id, ()))

    def add(
        self,
        leases: Iterable[Lease],
        evidence: Mapping[str, Evidence],
        memory_used: Callable[[Lease], int | None],
        now: datetime,
    ) -> None:
        """Take a reading of each lease that is due for one; forget the leases that are gone."""
        found: dict[str, deque[Reading]] = {}
        for lease in leases:
            if lease.id not in evidence:
                continue
            known = found[lease.id] = self._of.get(lease.id) or deque(maxlen=_KEPT)
            if not known or now - known[-1].at >= _BETWEEN:
                known.append(Reading(now, evidence[lease.id].utilisation, memory_used(lease)))
        self._of = found


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ObservedState:
    """What the provider showed last."""

    devices: tuple[Device, ...] = ()
    observed: Mapping[str, Observed] = field(default_factory=dict)
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    capacity_known: bool = False
    problem: str = "not looked yet"

    @cached_property
    def by_uuid(self) -> Mapping[str, Device]:
        """The devices by their identifiers."""
        return {device.uuid: device for device in self.devices}


@dataclass(eq=False)
class Observer:
    """Looks, judges and takes down.

    Args:
        clock: the time, UTC.
    """

    ledger: Ledger
    provider: Provider
    watch: EvidenceCollector
    policies: Policies
    _: KW_ONLY
    metrics: Metrics
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        self.observed_state = ObservedState()
        self.minutes = Minutes()
        self.readings = Readings()
        self._unwritten: list[VerdictChange] = []

    async def look(self) -> None:
        """Ask the provider, judge each lease's use, and store what changed.

        What the store does not take is given to it again with the next look.
        """
        last, known, problem = self.observed_state, True, ""
        try:
            drained = self.policies.current.drained_nodes
            devices = tuple(with_drained(await self.provider.devices(), drained))
        except OSError as error:
            devices, known, problem = last.devices, False, str(error)
        if devices == last.devices:
            devices = last.devices  # what was worked out of them is true still
        observed = {seen.lease_id: seen for seen in await self.provider.observe()}
        now = self.clock()
        simulated = {device.uuid for device in devices if device.simulated}
        live, policy = self.ledger.live(), self.policies.current
        evidence = dict(self.watch.judge(live, policy, now, simulated))
        self.observed_state = ObservedState(devices, observed, evidence, known, problem)
        self.readings.add(live, evidence, self.watch.memory_used, now)
        await self._note(last.evidence, evidence, now)

    async def _note(
        self, before: Mapping[str, Evidence], after: Mapping[str, Evidence], now: datetime
    ) -> None:
        """Store each change of verdict, and each minute that is over."""
        changed = []
        for lease_id, evidence in after.items():
            known = before.get(lease_id)
            if known is None or known.verdict is not evidence.verdict:
                self.metrics.judged(evidence.verdict)
                log.info("verdict %s", evidence.verdict.value, extra={"lease": lease_id})
                changed.append(VerdictChange(lease_id, now, evidence.verdict))
        self.minutes.add(after, now)
        self.minutes.forget(self.ledger.leases)
        over = self.minutes.due(now)
        # What the store does not take is stored in a later round.
        kept = (*self._unwritten, *changed)
        self._unwritten = [each for each in kept if each.lease_id in self.ledger.leases]
        if self._unwritten or over:
            try:
                await self.ledger.write(writing.add_evidence, self._unwritten, over)
            except GPULeaseError as error:
                # The plan goes on: what it changes is refused by itself if the store is away.
                log.warning("evidence could not be stored: %s", error.sentence)
                return
            self._unwritten = []
            self.minutes.written(over)
