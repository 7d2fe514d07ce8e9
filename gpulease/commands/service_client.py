"""Which lease service a command talks to, and with which token.

It needs the base install alone: so does every command of a notebook server.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from gpulease import login, protocol
from gpulease.client import Client
from gpulease.errors import GPULeaseError


def client_of(given: str | None, *, timeout: float = 30.0) -> Client:
    """Return the client of the service that is named here or in the environment.

    ``timeout``: seconds that one call may take.

    Raises:
        GPULeaseError: ``no_service``, ``no_token``, ``bad_option``.
    """
    kept = login.read()
    url = given or os.environ.get(protocol.ENV_SERVICE_URL) or kept.url
    token = os.environ.get("GPULEASE_TOKEN", "")
    if not token and kept.token and same_service(url, kept.url):
        token = kept.token  # a token is shown to no other service than the one it was given for
    token = token or os.environ.get("JUPYTERHUB_API_TOKEN", "")
    if not url:
        raise GPULeaseError(
            "no_service",
            "It is not known where the lease service is.",
            next_step=f"`gpulease admin login --url URL` keeps it; or set"
            f" {protocol.ENV_SERVICE_URL}.",
        )
    if not token:
        raise GPULeaseError(
            "no_token",
            "There is no token to prove who you are.",
            next_step="Make one on the hub's Token page; `gpulease admin login` asks for it.",
        )
    return Client(checked(url), token, timeout=timeout)


def same_service(one: str, other: str) -> bool:
    """Say whether two addresses are of the same service."""
    return one.rstrip("/") == other.rstrip("/")


def checked(url: str) -> str:
    """Return the address itself.

    Raises:
        GPULeaseError: ``bad_option``: it is none.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port above 65535, a bracket that stays open
        fits = False
    if not fits:
        raise GPULeaseError(
            "bad_option",
            f"{url!r} is not an address of the lease service.",
            next_step="Give one such as https://hub.example.org/services/gpulease/.",
        )
    return url
