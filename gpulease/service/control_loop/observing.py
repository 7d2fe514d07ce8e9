"""The first step of a round: what the provider shows, and what that says of each lease's use.

Each change of verdict and each minute of evidence reaches the store, if not now then with a later
look.  Devices that were given back count as taken until a look that began later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from gpulease.errors import GPULeaseError
from gpulease.policy.capacity import with_drained
from gpulease.policy.lifecycle import HOLDING
from gpulease.policy.model import Device, Evidence, Lease, Observed
from gpulease.providers.base import Provider
from gpulease.service.control_loop.evidence import EvidenceCollector, Minutes, Readings
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.policies import Policies
from gpulease.service.metrics import Metrics
from gpulease.store import Change, VerdictChange

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


class Observer:
    """Looks, judges and takes down.

    Args:
        clock: the time, UTC.
    """

    def __init__(
        self,
        ledger: Ledger,
        provider: Provider,
        watch: EvidenceCollector,
        policies: Policies,
        *,
        metrics: Metrics,
        clock: Callable[[], datetime],
    ) -> None:
        self._ledger = ledger
        self._provider = provider
        self._watch = watch
        self._policies = policies
        self._metrics = metrics
        self._clock = clock
        self.observed_state = ObservedState()
        self.minutes = Minutes()
        self.readings = Readings()
        self._unwritten: list[VerdictChange] = []

    def busy_share(self, lease: Lease) -> float | None:
        """Return the share of its time that a lease was busy, ``None`` when that is not known."""
        return self.minutes.busy_share(lease.id)

    def memory_used(self, lease: Lease) -> int | None:
        """Return how much memory a lease holds of its devices, bytes; ``None`` is not known."""
        return self._watch.memory_used(lease)

    async def look(self) -> None:
        """Ask the provider, judge each lease's use, and store what changed.

        What the store does not take is given to it again with the next look.
        """
        last, known, problem = self.observed_state, True, ""
        try:
            drained = self._policies.current.drained_nodes
            devices = tuple(with_drained(await self._provider.devices(), drained))
        except OSError as error:
            devices, known, problem = last.devices, False, str(error)
        if devices == last.devices:
            devices = last.devices  # what was worked out of them is true still
        observed = {seen.lease_id: seen for seen in await self._provider.observe()}
        now = self._clock()
        simulated = {device.uuid for device in devices if device.simulated}
        live, policy = self._ledger.live(), self._policies.current
        evidence = dict(self._watch.judge(live, policy, now, simulated))
        self.observed_state = ObservedState(devices, observed, evidence, known, problem)
        self.readings.add(live, evidence, self._watch.memory_used, now)
        await self._note(last.evidence, evidence, now)

    async def _note(
        self, before: Mapping[str, Evidence], after: Mapping[str, Evidence], now: datetime
    ) -> None:
        """Store each change of verdict, and each minute that is over."""
        changed = []
        for lease_id, evidence in after.items():
            known = before.get(lease_id)
            if known is None or known.verdict is not evidence.verdict:
                self._metrics.judged(evidence.verdict)
                log.info("verdict %s", evidence.verdict.value, extra={"lease": lease_id})
                changed.append(VerdictChange(lease_id, now, evidence.verdict))
        self.minutes.add(after, now)
        self.minutes.forget(self._ledger.leases)
        over = self.minutes.due(now)
        # What the store does not take is stored in a later round.
        kept = (*self._unwritten, *changed)
        self._unwritten = [each for each in kept if each.lease_id in self._ledger.leases]
        if self._unwritten or over:
            try:
                await self._ledger.call(self._ledger.store.record_evidence, self._unwritten, over)
            except GPULeaseError as error:
                # The plan goes on: what it changes is refused by itself if the store is away.
                log.warning("evidence could not be stored: %s", error.sentence)
                return
            self._unwritten = []
            self.minutes.written(over)


class Unseen:
    """Keeps them from look to look."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}  # the present look, or the next one, shows them
        self._since: dict[str, str] = {}  # given back since that look began

    def moved(self, changes: Sequence[Change]) -> None:
        """Take recorded changes."""
        for change in changes:
            before, after = change.before, change.after
            if before is not None and before.state in HOLDING and after.state not in HOLDING:
                self._since |= dict.fromkeys(before.devices, after.id)

    def look_begins(self) -> None:
        """Note that what is given back from now on is not in the look that begins."""
        self._before, self._since = self._before | self._since, {}

    def looked(self) -> None:
        """Note that the look was taken: what it shows holds."""
        self._before = {}

    def marked(
        self, devices: tuple[Device, ...], known: Mapping[str, Device]
    ) -> tuple[Device, ...]:
        """Return the devices, these and all parts of their cards taken by the lease that ended.

        ``known``: the devices by their identifiers.
        """
        cards = {
            known[uuid].card or uuid: lease_id
            for uuid, lease_id in (self._before | self._since).items()
            if uuid in known
        }
        if not cards:
            return devices
        return tuple(
            replace(each, occupied_by=cards[place])
            if (place := each.card or each.uuid) in cards and each.occupied_by is None
            else each
            for each in devices
        )
