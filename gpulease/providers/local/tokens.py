"""The credential of a local lease's supervisor.

Derived, not kept: HMAC-SHA256 over lease and attempt with the service's secret, so tokens survive a
restart of the service and are stored nowhere.
"""

from __future__ import annotations

import hashlib
import hmac

from gpulease.policy.model import Lease


def lease_token(secret: bytes, lease_id: str, attempt: int) -> str:
    """Return the credential of one attempt's supervisor."""
    return hmac.new(secret, f"{lease_id}:{attempt}".encode(), hashlib.sha256).hexdigest()


def is_token_of(secret: bytes, lease: Lease, token: str) -> bool:
    """Tell whether the token is that of the lease's present attempt."""
    expected = lease_token(secret, lease.id, lease.attempt)
    # Bytes: what a stranger sends may hold any character.
    return hmac.compare_digest(expected.encode(), token.encode(errors="replace"))
