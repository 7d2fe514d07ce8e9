"""What people may do to leases that are there: keep, end, upgrade, connect, look.

It is decided here who may do what to whose lease.  ``leases.requests`` is how they ask for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial

from gpulease.errors import GPULeaseError
from gpulease.policy import admission, lifecycle
from gpulease.policy.explanation.forecast import what_ends
from gpulease.policy.model import Evidence, Lease, LeaseState
from gpulease.policy.reservations.seats import time_outs_at
from gpulease.protocol.names import PROTOCOL_VERSION
from gpulease.protocol.service import ConnectionView
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.policies import Policies
from gpulease.service.control_loop.reconcile import Reconciler
from gpulease.service.hubs.auth import Asker
from gpulease.service.leases.requests import RequestBatcher
from gpulease.service.leases.view_parts import device_views
from gpulease.service.schemas.bodies import ConnectionBody
from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
from gpulease.store import Change

_LEAVING = frozenset({LeaseState.DRAINING, LeaseState.ENDED})
_CONNECTABLE = frozenset({LeaseState.ACTIVE, LeaseState.WARNED})


@dataclass(eq=False)
class LeaseCommands:
    """Every change of a lease that a person or their notebook can make."""

    ledger: Ledger
    loop: Reconciler
    links: SupervisorConnections
    policies: Policies
    batcher: RequestBatcher
    _: KW_ONLY
    prove: Callable[[Asker], Awaitable[str]]

    async def end(self, asker: Asker, lease_id: str, note: str, *, force: bool = False) -> Lease:
        """Return, withdraw or (an admin) force the end of a lease.

        Raises:
            GPULeaseError: ``no_such_lease``, ``cell_running``.
        """

        def decide() -> Change:
            lease = self.endable(asker, lease_id)
            now = self.loop.clock()
            outs = lifecycle.time_outs_of(self.policies.current, lease)
            if asker.name == lease.user and not (asker.admin and note):
                cells = _cells(self.loop.observed_state.evidence.get(lease_id))
                after = lifecycle.give_back(lease, now, outs, force=force, cells=cells)
                return Change(lease, after, asker.name, "returned")
            after = lifecycle.force_end(lease, now, outs, note)
            return Change(lease, after, asker.name, "forced")

        return await self.batcher.change(decide)

    async def end_group(self, asker: Asker, group: str, note: str) -> list[Lease]:
        """End every lease and request of a group's members but the asker's own; ``note`` is what
        they read.  What drains already is left to it.

        Raises:
            GPULeaseError: ``not_your_group`` (403).
        """
        if not (asker.admin or asker.teaches(group)):
            raise not_your_group(group)

        def forced(lease: Lease) -> Change:
            now, here = self.loop.clock(), self.ledger.leases.get(lease.id)
            if here is None or here.state in _LEAVING:  # it went by itself meanwhile
                return Change(here or lease, here or lease, asker.name, "forced")
            outs = lifecycle.time_outs_of(self.policies.current, here)
            return Change(here, lifecycle.force_end(here, now, outs, note), asker.name, "forced")

        theirs = [
            lease
            for lease in self.ledger.leases.values()
            if group in lease.groups and lease.user != asker.name and lease.state not in _LEAVING
        ]
        ended = (self.batcher.change(partial(forced, lease)) for lease in theirs)
        return list(await asyncio.gather(*ended))

    async def keep(self, asker: Asker, lease_id: str) -> Lease:
        """Keep an idle lease for a while.

        Raises:
            GPULeaseError: ``no_such_lease``, ``keep_not_possible``, ``keep_used_up``.
        """

        def decide() -> Change:
            lease = self.changeable(asker, lease_id)
            snapshot = self.loop.snapshot()
            outs, ending = time_outs_at(snapshot, lease), what_ends(snapshot, lease)
            idle = ending.at if ending is not None and ending.cause == "idle_warning" else None
            after = lifecycle.keep(lease, self.loop.clock(), outs, idle)
            return Change(lease, after, asker.name, "kept")

        return await self.batcher.change(decide)

    async def upgrade(self, asker: Asker, lease_id: str) -> Lease:
        """Let a lease become what was asked for, or as much of it as is free.

        Raises:
            GPULeaseError: ``no_such_lease``, ``nothing_wished``, ``wish_not_free``,
                ``cell_running``.
        """

        def decide() -> Change:
            lease = self.changeable(asker, lease_id)
            shape = admission.granted(self.loop.snapshot(), lease)
            outs = lifecycle.time_outs_of(self.policies.current, lease)
            cells = _cells(self.loop.observed_state.evidence.get(lease_id))
            after = lifecycle.reshape(lease, shape, self.loop.clock(), outs, cells=cells)
            return Change(lease, after, asker.name, "reshaped")

        return await self.batcher.change(decide)

    async def connect(self, asker: Asker, lease_id: str, body: ConnectionBody) -> ConnectionView:
        """Admit a home kernel's key and say where the lease's supervisor is.

        Raises:
            GPULeaseError: ``no_server``, ``no_such_lease``, ``not_active``,
                ``companion_unreachable``.
        """
        server = await self.prove(asker)
        lease = self.ledger.leases.get(lease_id)
        if lease is None or (lease.user, lease.server) != (asker.name, server):
            raise _no_such_lease()
        if lease.state not in _CONNECTABLE:
            raise GPULeaseError(
                "not_active",
                f"This lease is {lease.state.value}: there is nothing to connect to.",
                next_step="Request a GPU, or wait until the lease is active.",
                numbers={"state": lease.state.value},
            )
        address, server_key = await self.links.admit(lease, body.client_key, body.kernel_id)
        await self._claim(lease_id)
        devices = device_views(lease, self.loop.observed_state.by_uuid)
        return {
            "lease_id": lease.id,
            "address": address,
            "server_key": server_key,
            "protocol": PROTOCOL_VERSION,
            "simulated": any(device["simulated"] for device in devices),
            "gpu_class": lease.gpu_class,
            "devices": devices,
        }

    def visible(self, asker: Asker, lease_id: str) -> Lease:
        """Return a lease that the asker may see; others do not exist for them.

        Raises:
            GPULeaseError: ``no_such_lease`` (404).
        """
        lease = self.ledger.leases.get(lease_id)
        if lease is None or not asker.may_see(lease.user, lease.groups):
            raise _no_such_lease()
        return lease

    def changeable(self, asker: Asker, lease_id: str) -> Lease:
        """Return a lease that the asker may change.

        Raises:
            GPULeaseError: ``no_such_lease`` (404), ``not_yours`` (403).
        """
        lease = self.visible(asker, lease_id)
        if not asker.may_change(lease.user):
            raise GPULeaseError(
                "not_yours",
                "This is another user's lease: you may look at it, not change it.",
                next_step="Ask its holder or an admin.",
            )
        return lease

    def endable(self, asker: Asker, lease_id: str) -> Lease:
        """Return a lease that the asker may end: instructors may for their groups.

        Raises:
            GPULeaseError: ``no_such_lease`` (404), ``not_yours`` (403).
        """
        lease = self.visible(asker, lease_id)
        return lease if asker.leads_any(lease.groups) else self.changeable(asker, lease_id)

    async def _claim(self, lease_id: str) -> None:
        def decide() -> Change:
            lease = self.ledger.leases[lease_id]
            holds = lease.claimed is None and lease.state in lifecycle.HOLDING
            after = lifecycle.claim(lease, self.loop.clock()) if holds else lease
            return Change(lease, after, lease.user, "claimed")

        await self.batcher.change(decide)


def _no_such_lease() -> GPULeaseError:
    return GPULeaseError(
        "no_such_lease",
        "There is no such lease, or it is not yours to see.",
        next_step="Look at the list of your leases.",
    )


def not_your_group(group: str) -> GPULeaseError:
    """Return the refusal of what only those may do who teach a group."""
    return GPULeaseError(
        "not_your_group",
        f"You do not teach {group!r}.",
        next_step="See the list at groups.",
    )


def _cells(evidence: Evidence | None) -> int:
    """Return how many cells of the user run on a lease's GPU."""
    return evidence.cells if evidence is not None else 0
