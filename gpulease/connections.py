"""Connections of HTTP clients: when each has ended, and whom a process trusts to be the service.

aiohttp forgets a connection whose call was cancelled, or whose websocket was closed, while TLS
still says good-bye: for half a minute if the other side does not answer, and for ever if the loop
ends first.  Where the lease service has an ``https`` address, a site's authorities count beside
the system's.  No certificate of its own is shown: who calls is known by a token.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler

from gpulease.errors import GPULeaseError
from gpulease.protocol import ENV_SERVICE_CA

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


log = logging.getLogger(__name__)

#: Seconds that cut connections may take to end; nobody else is waited for, so they need none.
END_SECONDS = 5.0


class Connector(aiohttp.TCPConnector):
    """A connector that knows each connection it made and has not lost yet."""

    def __init__(self, **options: Any) -> None:
        # Where aiodns is installed (the hub brings it) aiohttp looks names up with it, and cancels
        # its resolver at the end without closing it: a thread and five descriptors stay open.
        super().__init__(resolver=aiohttp.ThreadedResolver(), **options)
        self._made: dict[asyncio.Future[None], asyncio.BaseTransport] = {}

    async def _create_connection(self, *args: Any, **kwargs: Any) -> ResponseHandler:
        protocol = await super()._create_connection(*args, **kwargs)
        ended, transport = protocol.closed, protocol.transport
        if ended is not None and transport is not None:
            self._made[ended] = transport
            ended.add_done_callback(self._lost)
        return protocol

    def _lost(self, ended: asyncio.Future[None]) -> None:
        del self._made[ended]
        if not ended.cancelled():
            ended.exception()  # how it ended is told by the call that used it

    async def end(self) -> None:
        """Cut every connection and return once their transports have ended."""
        for transport in self._made.values():
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
        if self._made:
            await asyncio.wait(list(self._made), timeout=END_SECONDS)
        if self._made:
            log.warning("%d connections do not end", len(self._made))
