"""The Provider port: where leases run.

Owns the interface between the reconcile loop and a place that can run lease pods (or local process
trees).  Refuses to decide: it does what it is told and shows what it sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpulease.policy.model import Device, Lease, Observed
from gpulease.protocol import GrantView


class Provider(Protocol):
    """A place where leases run.

    The reconcile loop is the only caller.  Every method is idempotent: after a crash the loop
    calls again with the same lease, and nothing happens twice.
    """

    name: str

    async def open(self) -> None:
        """Called once before the first plan; returns when ``devices`` can be trusted."""

    async def close(self) -> None:
        """Called at shutdown; running leases are left running."""

    async def devices(self) -> Sequence[Device]:
        """Called before each plan: every device, with what occupies it now.

        Raises:
            OSError: the capacity cannot be known at present; the loop grants and reclaims nothing.
        """

    async def start(self, lease: Lease) -> None:
        """Called after the intent ``starting`` is stored: begin to start this attempt."""

    async def stop(self, lease: Lease) -> None:
        """Called until ``observe`` no longer shows the lease: end every process of it."""

    async def observe(self) -> Sequence[Observed]:
        """Called before each plan: every lease this provider still shows, known or not."""

    def grant(self, lease: Lease) -> GrantView | None:
        """Called when the server's own channel is told of a lease; ``None`` when nothing to tell.

        Only providers whose companions the server starts itself (local) grant anything.
        """
