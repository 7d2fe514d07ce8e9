"""A lease as others than its holder read it.

Owns that the provider's own words (names of nodes, images, volumes) go to admins alone, and that
nobody is told to do what only the holder can, and which
notebook uses a lease to its holder alone.  Those of a start are its newest: within one stage
they change without a change of the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpulease.policy.explanation.explain import admin_step
from gpulease.policy.model import Lease, LeaseState, Observed
from gpulease.protocol import LeaseView
from gpulease.service.hubs.auth import Asker


def said_of(lease: Lease, observed: Mapping[str, Observed]) -> Observed | None:
    """Return what is seen of a lease's present start, ``None`` when it does not start."""
    seen = observed.get(lease.id)
    starts = lease.state is LeaseState.STARTING
    return seen if starts and seen is not None and seen.attempt == lease.attempt else None


def newest(lease: Lease, observed: Mapping[str, Observed]) -> Lease:
    """Return the lease with the newest of the provider's words."""
    seen = said_of(lease, observed)
    return replace(lease, detail=seen.detail) if seen is not None and seen.detail else lease


def with_detail(asker: Asker, lease: Lease, view: LeaseView) -> LeaseView:
    """Return the view for this asker.

    An admin reads the provider's own words on the lease and, of others' leases, an admin's next
    step; an instructor reads none there.
    """
    if asker.name == lease.user and not asker.admin:
        return view  # the very one, so that it is written once for all who read it
    own = view.copy()
    if asker.name != lease.user:
        own["notebook"] = ""
    if asker.admin and lease.detail:
        own["detail"] = lease.detail
    if asker.name != lease.user:
        own["next_step"] = admin_step(lease) if asker.admin else ""
    return own
