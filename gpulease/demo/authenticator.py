"""Lets the demo's people in, and nobody else."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from jupyterhub.auth import Authenticator

from gpulease.demo.options import PEOPLE


class DemoAuthenticator(Authenticator):
    """Fixed names and passwords, printed by ``gpulease demo``: for loopback only."""

    async def authenticate(self, _handler: Any, data: Mapping[str, str]) -> str | None:
        """Return the name when the password fits."""
        for person in PEOPLE:
            if person.name == data["username"] and hmac.compare_digest(
                person.password.encode(), data["password"].encode()
            ):
                return person.name
        return None
