"""What an admin reads of a lease beyond what its holder does.

Owns that the provider's own words (names of nodes, images, volumes) go to admins alone.
"""

from __future__ import annotations

from gpulease.policy.model import Lease
from gpulease.protocol import LeaseView
from gpulease.service.auth import Asker


def with_detail(asker: Asker, lease: Lease, view: LeaseView) -> LeaseView:
    """Return the view with the provider's own words on the lease, for an admin."""
    if not asker.admin or not lease.detail:
        return view
    own = view.copy()
    own["detail"] = lease.detail
    return own
