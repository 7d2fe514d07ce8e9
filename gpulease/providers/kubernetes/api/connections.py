"""The official package's transport, over connections that have ended when it has.

A transport of our own over aiohttp would not be shorter: it would read certificates, proxies and
renewed tokens again.
"""

from __future__ import annotations

from kubernetes.aio.client.rest import RESTClientObject

from gpulease.connector import Connector


class Transport(RESTClientObject):
    """The package's transport over connections that end with it."""

    _connector: Connector | None = None

    def _create_connector(self) -> Connector:
        self._connector = Connector(limit=self.maxsize, ssl=self.ssl_context)
        return self._connector

    async def close(self) -> None:
        """End the session and every connection it had."""
        await super().close()
        if self._connector is not None:
            await self._connector.end()
