"""Loopback ports that nobody else is given meanwhile; the demo and the hub's spawners take them."""

from __future__ import annotations

import os
import random
import socket
from collections import deque
from pathlib import Path
from typing import Final

_KERNELS_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000
_TRIES: Final = 100
_MOST: Final = 64

#: Descriptors that hold the ports given last.  A server binds its own long before 64 more are.
_holders: deque[int] = deque()


def free_port() -> int:
    """Return a loopback port that is free, and given neither by the kernel nor by this to others.

    One of the kernel's own range may become another process's before its user binds it, even as the
    near end of a connection.  The port stays bound here, and its user can bind it too if it sets
    SO_REUSEADDR, as servers do.
    """
    first = int(_KERNELS_PORTS.read_text().split()[0]) if _KERNELS_PORTS.exists() else _LOWEST
    ours = range(_LOWEST, first)
    for _ in range(_TRIES if ours else 0):
        if port := _hold(random.choice(ours), shared=False):
            return port
    return _hold(0, shared=False)


def hold_port(port: int) -> bool:
    """Hold this loopback port for its user; return False where somebody has it."""
    return _hold(port, shared=True) > 0  # connections to the user before may linger on it


def _hold(port: int, *, shared: bool) -> int:
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shared)
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        return 0
    # Set after the bind, too, it lets the user bind, and not the next one that looks as this did.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound = int(holder.getsockname()[1])
    _holders.append(holder.detach())
    if len(_holders) > _MOST:
        os.close(_holders.popleft())
    return bound
