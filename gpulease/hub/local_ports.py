"""Ports of servers that run on the hub's machine: ones that nobody else is given meanwhile."""

from __future__ import annotations

from typing import Any

from jupyterhub.spawner import LocalProcessSpawner

from gpulease.system.loopback_ports import free_port


class OwnPortMixin(LocalProcessSpawner):
    """Put before a spawner of local processes: each start takes a port of its own.

    JupyterHub asks the kernel for any free port and lets it go until the server binds it, a second
    or more later: a connection or a notebook's kernel may have it by then.  And a start that
    failed so would try the same port again.
    """

    port: Any
    _port_is_ours = False

    async def start(self) -> Any:
        """Start the server on the configured port, or on one that the kernel gives nobody."""
        if self._port_is_ours or self.port == 0:
            self._port_is_ours = True
            self.port = free_port()
        return await super().start()
