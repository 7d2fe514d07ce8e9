"""The local provider: devices of this machine, leased to notebook servers on it.

It decides which device a lease occupies and when nothing of a lease is left.  It never starts a
companion: it publishes a grant, and the student's own server starts the process under the
student's own account.  What runs is found again from ``/proc``, from the server's reports and from
the supervisor channel, so a restarted service loses nothing; a supervisor's token is derived
(HMAC-SHA256 over lease and attempt with the service's secret), not stored.  What is left of a
lease that the service cannot end keeps its device out of service, and an admin is notified.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache

from gpulease.gpus import driver
from gpulease.gpus.base import GPUInfo, Probe, Sample
from gpulease.gpus.simulated import SimulatedProbe
from gpulease.policy import capacity
from gpulease.policy.model import (
    Bound,
    Device,
    DevicesBy,
    EvidenceLevel,
    GPUClass,
    Lease,
    LeaseState,
    Observed,
)
from gpulease.protocol.reports import Activity
from gpulease.protocol.service import GrantView
from gpulease.providers.base import LinkState, SupervisorLink, SupervisorReport
from gpulease.providers.local import processes
from gpulease.providers.local.processes import HeldLease, Process
from gpulease.system.process_table import process_table


def lease_token(secret: bytes, lease_id: str, attempt: int) -> str:
    """Return the credential of one attempt's supervisor."""
    return hmac.new(secret, f"{lease_id}:{attempt}".encode(), hashlib.sha256).hexdigest()


def is_token_of(secret: bytes, lease: Lease, token: str) -> bool:
    """Tell whether the token is that of the lease's present attempt."""
    expected = lease_token(secret, lease.id, lease.attempt)
    # Bytes: what a stranger sends may hold any character.
    return hmac.compare_digest(expected.encode(), token.encode(errors="replace"))


log = logging.getLogger(__name__)

FOREIGN = "foreign"
#: Seconds after the service ended a lease's processes until what is left is said to be stuck.
_STUCK_AFTER = 5.0


class LocalProvider:
    """Leases the devices of this machine.

    Args:
        probe: reads the devices; called in worker threads only.
        link: the supervisor channels.
        secret: supervisors' credentials are derived from it.
        grant: makes the grant of a lease from what the provider adds (token, visible devices,
            simulated).
        lost_after: seconds without any sign of a lease that ran, until it counts as gone.
        kill_after: seconds after ``stop`` until the service itself ends what it can reach.
        clock: monotonic seconds.
        devices_by: how a class names its devices for CUDA.
        card_parts: into how many parts the cards of a pool are divided; 0 where they are not.
    """

    name = "local"
    home_memory = 0.0
    grows = False
    several_nodes = True

    def __init__(
        self,
        probe: Probe,
        link: SupervisorLink,
        secret: bytes,
        grant: Callable[[Lease, str, str, bool], GrantView],
        *,
        lost_after: float = 15.0,
        kill_after: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
        devices_by: Callable[[str], DevicesBy] = lambda _class: DevicesBy.UUID,
        card_parts: Callable[[str], int] = lambda _pool: 0,
    ) -> None:
        self._probe = probe
        self._link = link
        self._secret = secret
        self._grant = grant
        self._lost_after = lost_after
        self._kill_after = kill_after
        self._clock = clock
        self._devices_by = devices_by
        self._card_parts = card_parts
        self._infos: dict[str, GPUInfo] = {}
        self._samples: dict[str, Sample] = {}
        self._held: dict[str, HeldLease] = {}

    @property
    def server_started(self) -> LocalProvider:
        """The provider itself: the student's own server starts the companion."""
        return self

    @property
    def warm_pods(self) -> None:
        """Nothing: servers here start their companions ahead by themselves."""

    @property
    def agent_reports(self) -> None:
        """Nothing: the devices are read by the service itself."""

    async def open(self) -> None:
        """Read the inventory and the first samples."""
        await self.inventory()
        await self.sample()

    async def close(self) -> None:
        """Give the driver back; leases are left running."""
        await asyncio.to_thread(self._probe.close)

    async def inventory(self) -> Sequence[GPUInfo]:
        """Read the devices again."""
        infos = await asyncio.to_thread(self._probe.inventory)
        self._infos = {info.uuid: info for info in infos}
        return infos

    async def sample(self) -> Sequence[Sample]:
        """Read each device's use."""
        samples = await asyncio.to_thread(self._probe.sample)
        self._samples = {sample.uuid: sample for sample in samples}
        return [*samples, *self._of_parts(samples)]

    def _of_parts(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the samples of leased parts of real cards: whose use it is nobody can tell."""
        leased: dict[str, list[str]] = {}
        for held in self._held.values():
            for uuid in held.lease.devices:
                if capacity.card_of(uuid) != uuid:
                    leased.setdefault(capacity.card_of(uuid), []).append(uuid)
        return [
            replace(sample, uuid=uuid, memory_used=None, level=EvidenceLevel.CELLS)
            for sample in samples
            for uuid in leased.get(sample.uuid, ())
        ]

    def recall_home(self, user: str, why: str, at: datetime) -> None:
        """Keep nothing in mind: homes are where the leases are."""

    def problem(self) -> str:
        """Say why there is no device, and of each that fails what to do."""
        if not self._infos:
            return driver.say(self._probe.problem) or "no device"
        failing = [
            f"{uuid}: {driver.say(sample.gap)}"
            for uuid, sample in sorted(self._samples.items())
            if sample.gap in driver.WORDS
        ]
        return "; ".join(failing)

    def limits(self) -> Sequence[str]:
        """Say which devices cannot be measured."""
        return self._probe.limits()

    async def devices(self) -> Sequence[Device]:
        """Return every device with what occupies it."""
        parts = {info.uuid: self._card_parts(pool_of(info)) for info in self._infos.values()}
        holders = self._holders()
        return [
            self._device(info, uuid, parts[info.uuid], holders.get(info.uuid, {}))
            for info in self._infos.values()
            for uuid in capacity.parts_of(info.uuid, parts[info.uuid])
        ]

    def bounds(self, requests: Sequence[Lease]) -> Sequence[Bound]:  # noqa: ARG002
        """Return nothing: only its devices bound one machine."""
        return ()

    def preferred_node(self, lease: Lease) -> str:  # noqa: ARG002
        """Return nothing: there is one machine."""
        return ""

    def image(self, gpu_class: GPUClass, course: str) -> str:  # noqa: ARG002
        """Return nothing: a companion is a process beside the notebook's."""
        return ""

    async def start(self, lease: Lease) -> None:
        """Hold the devices for this attempt; the grant travels on the server's own channel."""
        held = self._held.get(lease.id)
        if held is None or held.lease.attempt != lease.attempt:
            held = HeldLease(lease, shown_at=self._clock())
            # A lease that was active before this service started did run.
            held.ran = lease.state is not LeaseState.STARTING
            self._held[lease.id] = held
        held.lease = lease
        if isinstance(self._probe, SimulatedProbe):
            for uuid in lease.devices:
                self._probe.lease(uuid)

    async def stop(self, lease: Lease) -> None:
        """Tell the supervisor to end; after ``kill_after`` end what this account may reach."""
        held = self._held.setdefault(lease.id, HeldLease(lease))
        if held.stopping_since is None:
            held.stopping_since = self._clock()
            self._link.send(lease.id, {"type": "end", "reason": lease.end_reason or lease.reason})
        elif self._overdue(held):
            # A supervisor that does not end keeps its channel; it is cut, whatever it says.
            self._link.cut(lease.id)
            told = await asyncio.to_thread(held.end)
            if told:
                log.warning("killed %d processes that outlived lease %s", told, lease.id)

    async def observe(self) -> Sequence[Observed]:
        """Look at every held lease; one that was stopped and of which nothing is left is freed."""
        # Without leases there is nothing to look for, and /proc may be long.
        if self._held:
            await asyncio.to_thread(self._find, list(self._held.values()))
        shown = []
        for lease_id, held in list(self._held.items()):
            observed = self._look(held)
            if observed.gone and held.stopping_since is not None:
                self._free(lease_id)
            else:
                shown.append(observed)
        return shown

    def put_back(self, lease_id: str) -> bool:
        """Give the devices of a lease that is over free, whatever is left of it.

        Returns False where nothing of it holds a device, or the service is still ending it.
        """
        held = self._held.get(lease_id)
        if held is None or not self._overdue(held):
            return False
        self._free(lease_id)
        return True

    async def rank_of(self, lease: Lease, token: str) -> int | None:
        """Compare with the token of the present attempt: all nodes have one supervisor here."""
        return 0 if is_token_of(self._secret, lease, token) else None

    def grant(self, lease: Lease) -> GrantView | None:
        """Return what the lease's own server needs to start the supervisor."""
        if not lease.devices or lease.state in {LeaseState.QUEUED, LeaseState.ENDED}:
            return None
        mine = dict.fromkeys(capacity.card_of(uuid) for uuid in lease.devices)
        infos = [self._infos[uuid] for uuid in mine if uuid in self._infos]
        by_index = self._devices_by(lease.gpu_class) is DevicesBy.INDEX
        visible = ",".join(_name(info, by_index=by_index) for info in infos if not info.simulated)
        token = lease_token(self._secret, lease.id, lease.attempt)
        return self._grant(lease, token, visible, any(info.simulated for info in infos))

    def report(self, report: SupervisorReport) -> None:
        """Take what the server says of its supervisor; reports of old attempts are dropped."""
        held = self._held.get(report.lease_id)
        if held is None or held.lease.attempt != report.attempt:
            return
        held.report = report
        held.ran = held.ran or report.state == "started"
        held.belongs_to(report.account)
        held.claim(report.pids)

    def heard(self, lease: Lease, samples: Sequence[Activity]) -> None:
        """Feed simulated devices with the CPU time of the lease's own processes."""
        if isinstance(self._probe, SimulatedProbe):
            for sample in samples:
                at = datetime.fromisoformat(sample["at"])
                for uuid in lease.devices:
                    self._probe.feed(uuid, sample["use"], at)

    def _find(self, known: Sequence[HeldLease]) -> None:
        """Look into ``/proc`` for the processes of these leases; called in a worker thread."""
        marks, table = processes.marked(), process_table()
        for held in known:
            link = self._link_of(held)
            if link is not None and link.connected:
                held.belongs_to(link.account)
                held.claim([link.pid] if link.pid is not None else [])
            held.look(marks.get(held.lease.id, ()), table)

    def _link_of(self, held: HeldLease) -> LinkState | None:
        link = self._link.state(held.lease.id)
        return link if link is not None and link.attempt == held.lease.attempt else None

    def _look(self, held: HeldLease) -> Observed:
        lease, link, now = held.lease, self._link_of(held), self._clock()
        connected = link is not None and link.connected
        holding = held.holding(self._pids_on(lease))
        left = connected or bool(holding)
        if left:
            held.ran, held.shown_at = True, now
        report = held.report
        ended = report is not None and report.state in {"failed", "exited"} and not connected
        lost = held.ran and now - held.shown_at >= self._lost_after
        failed = "" if report is None or not ended else report.detail or report.state
        if not failed and link is not None and link.bye and not connected:
            failed = link.bye
        return Observed(
            lease.id,
            lease.attempt,
            connected=connected,
            failed=failed,
            gone=not left and (held.stopping_since is not None or (ended and held.ran) or lost),
            drained=link.drained if link else "",
            in_use=link.in_use if link else False,
            left=_pids(holding) if left and self._is_stuck(held, holding) else (),
        )

    def _overdue(self, held: HeldLease) -> bool:
        since = held.stopping_since
        return since is not None and self._clock() - since >= self._kill_after

    def _is_stuck(self, held: HeldLease, holding: set[Process]) -> bool:
        """Tell whether the service has done what it can to end a lease, and say so once."""
        since = held.stopping_since
        if since is None or self._clock() - since < self._kill_after + _STUCK_AFTER:
            return False
        if not held.told:
            held.told = True
            log.error(
                "processes %s outlive their lease and the service may not end them: its device is "
                "out of service until they have ended, or an admin puts it back", _pids(holding),
                extra={"lease": held.lease.id, "user": held.lease.user, "reason": "stuck"},
            )  # fmt: skip
        return True

    def _pids_on(self, lease: Lease) -> set[int] | None:
        """Return who uses the lease's devices; ``None`` where the driver does not tell.

        Nobody is on a simulated device.
        """
        found: set[int] = set()
        for card in map(capacity.card_of, lease.devices):
            info, sample = self._infos.get(card), self._samples.get(card)
            if info is not None and info.simulated:
                continue
            if sample is None or sample.gap or sample.pids is None:
                return None
            found.update(sample.pids)
        return found

    def _holders(self) -> Mapping[str, Mapping[str, HeldLease]]:
        """Return, by the card, the leases that hold it or parts of it."""
        found: dict[str, dict[str, HeldLease]] = {}
        for lease_id, held in self._held.items():
            for uuid in held.lease.devices:
                found.setdefault(capacity.card_of(uuid), {})[lease_id] = held
        return found

    def _device(
        self, info: GPUInfo, uuid: str, parts: int, holders: Mapping[str, HeldLease]
    ) -> Device:
        sample = self._samples.get(info.uuid)
        return Device(
            uuid=uuid,
            pool=pool_of(info),
            name=info.name,
            memory=info.memory,
            simulated=info.simulated,
            healthy=not any(held.told for held in holders.values() if uuid in held.lease.devices),
            lost=sample is not None and sample.gap in driver.LOST_GAPS,
            occupied_by=_occupant(uuid, sample, holders),
            compute=info.compute_capability,
            ecc=info.ecc,
            card=info.uuid if parts else "",
            card_parts=parts,
        )

    def _free(self, lease_id: str) -> None:
        held = self._held.pop(lease_id)
        if isinstance(self._probe, SimulatedProbe):
            for uuid in held.lease.devices:
                self._probe.release(uuid)


def _pids(holding: set[Process]) -> tuple[int, ...]:
    return tuple(sorted(process.pid for process in holding))


def _name(info: GPUInfo, *, by_index: bool) -> str:
    """Return how CUDA is told of a device.  NVML counts as CUDA does by ``PCI_BUS_ID``."""
    return str(info.index) if by_index and not info.uuid.startswith("MIG-") else info.uuid


def pool_of(info: GPUInfo) -> str:
    """Return the pool of a device: one for each model on this machine."""
    return _pool_called(info.name)


@cache
def _pool_called(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "gpu"


def _occupant(uuid: str, sample: Sample | None, holders: Mapping[str, HeldLease]) -> str | None:
    """Return the lease that has a device, of those that hold its card."""
    for lease_id, held in holders.items():
        if any(capacity.overlap(uuid, each) for each in held.lease.devices):
            return lease_id
    # Nobody holds it, yet NVML lists a process: not ours to give away.  Those on a card of which
    # others hold parts may all be theirs.
    return FOREIGN if not holders and sample is not None and sample.pids else None
