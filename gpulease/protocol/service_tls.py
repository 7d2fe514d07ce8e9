"""Whom a process trusts to be the lease service, where that has an ``https`` address.

Authorities can be added to the system's.  The process shows no certificate of its own: a token
identifies the caller.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from gpulease.errors import GPULeaseError
from gpulease.protocol.names import ENV_SERVICE_CA

#: Where JupyterHub's ``internal_ssl`` tells a server its authorities: a file of certificates.
_HUB_AUTHORITIES = "JUPYTERHUB_SSL_CLIENT_CA"


def trusted(url: str, environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return what checks the certificate of the service at ``url``; ``None`` without TLS.

    Beside the system's authorities those of ``GPULEASE_SERVICE_CA`` (certificates as PEM text)
    count, and in a notebook server those of the hub's inner traffic.

    Raises:
        GPULeaseError: ``bad_settings`` where a variable holds no certificates.
    """
    if urlsplit(url).scheme not in {"https", "wss"}:
        return None
    context = ssl.create_default_context()
    own, hubs = environ.get(ENV_SERVICE_CA, ""), environ.get(_HUB_AUTHORITIES, "")
    try:
        if own:
            context.load_verify_locations(cadata=own)
    except (ssl.SSLError, ValueError) as error:
        raise _bad(ENV_SERVICE_CA, "it must hold certificates as PEM text") from error
    try:
        if hubs:
            context.load_verify_locations(cafile=hubs)
    except OSError as error:  # ssl.SSLError is one
        raise _bad(_HUB_AUTHORITIES, "it must name a file of certificates") from error
    return context


def _bad(name: str, wanted: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_settings",
        f"{name} cannot be used: {wanted}.",
        next_step="Correct the variable where this process is started.",
    )
