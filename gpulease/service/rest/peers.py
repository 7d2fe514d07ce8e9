"""Which account of this machine is at the other end of a connection, by the kernel's own word."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

#: A proxy writes one of these; the connection is its own then and says nothing of who sent what.
_FORWARDED = ("X-Forwarded-For", "X-Real-Ip", "Forwarded")


def account_of_peer(connection: socket.socket, headers: Mapping[str, str]) -> int | None:
    """Return the user id that owns the other end of a TCP connection.

    ``None`` where the other end is on another machine (or in another network namespace), and where
    a proxy stands between.
    """
    if any(name in headers for name in _FORWARDED):
        return None
    try:
        theirs, ours = connection.getpeername(), connection.getsockname()
    except OSError:  # closed meanwhile
        return None
    address = _plain(theirs[0])
    table = Path("/proc/net/tcp6" if address.version == 6 else "/proc/net/tcp")
    wanted = [_written(address, theirs[1]), _written(_plain(ours[0]), ours[1])]
    # Columns: number, local address, remote address, state, queues, timer, retransmits, user id.
    for line in table.read_text().splitlines()[1:]:
        columns = line.split()
        if columns[1:3] == wanted:
            return int(columns[7])
    return None


def _plain(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _written(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    """Return an address as the kernel's table writes it: words of 32 bits in the host's order."""
    words = struct.unpack(f"={len(address.packed) // 4}I", address.packed)
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
