"""Loopback ports that nobody else is given meanwhile; the demo and the hub's spawners take them."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path
from typing import Final

_KERNELS_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000
_TRIES: Final = 100


def free_port() -> int:
    """Return a loopback port that is free now, and that the kernel gives nobody by itself."""
    with contextlib.ExitStack() as held:
        return any_port(held)


def any_port(held: contextlib.ExitStack) -> int:
    """Hold a free loopback port that the kernel gives nobody by itself.

    It is let go before its user binds it.  One of the kernel's own range may become another
    process's meanwhile, even as the near end of a connection.
    """
    first = int(_KERNELS_PORTS.read_text().split()[0]) if _KERNELS_PORTS.exists() else _LOWEST
    ours = range(_LOWEST, first)
    for _ in range(_TRIES if ours else 0):
        port = hold_port(held, random.choice(ours))
        if port is not None:
            return port
    return hold_port(held, 0) or 0


def hold_port(held: contextlib.ExitStack, port: int) -> int | None:
    """Bind a loopback port until ``held`` closes; return its number, or None where it is taken."""
    holder = held.enter_context(socket.socket())
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        return None
    return int(holder.getsockname()[1])
