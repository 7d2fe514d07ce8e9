"""A lease as others than its holder read it.

Owns that the provider's own words (names of nodes, images, volumes) go to admins alone, and that
nobody is told to do what only the holder can.
"""

from __future__ import annotations

from gpulease.policy.explain import admin_step
from gpulease.policy.model import Lease
from gpulease.protocol import LeaseView
from gpulease.service.auth import Asker


def with_detail(asker: Asker, lease: Lease, view: LeaseView) -> LeaseView:
    """Return the view for this asker.

    An admin reads the provider's own words on the lease and, of others' leases, an admin's next
    step; an instructor reads none there.
    """
    own = view.copy()
    if asker.admin and lease.detail:
        own["detail"] = lease.detail
    if asker.name != lease.user:
        own["next_step"] = admin_step(lease) if asker.admin else ""
    return own
