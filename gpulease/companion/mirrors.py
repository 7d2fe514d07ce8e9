"""The mirrors of one lease: which directories, and who brings them up to date.

They lie in a directory that stands for a home that is not mounted, at home's own path, so that a
path means the same on both sides.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from gpulease.companion.ports import Ports
from gpulease.errors import GPULeaseError
from gpulease.mirror.away import AwayEnd, MirrorRoot
from gpulease.mirror.rules import MirrorLimits
from gpulease.protocol.control import MirrorView


class Mirrors:
    """All mirrors of a lease.

    Args:
        place: the directory in home's place; "" where home itself is mounted.
        limit: bytes that one mirrored directory may hold.
        ip: address to listen on.
        ports: of the lease.
    """

    def __init__(self, place: str, limit: int, ip: str, ports: Ports) -> None:
        self.place = os.path.realpath(place) if place else ""
        self._limit = limit
        self._ip = ip
        self._ports = ports
        self._roots: dict[Path, MirrorRoot] = {}
        self._ends: dict[str, tuple[AwayEnd, int]] = {}
        self._lock = threading.Lock()

    def has(self, path: str) -> bool:
        """Whether a directory of home's lies in the mirror."""
        return self._lies_inside(path)

    def make_directory(self, path: str) -> None:
        """See to it that home's working directory exists here, where it lies in the mirror."""
        if self._lies_inside(path):
            Path(path).mkdir(parents=True, exist_ok=True)

    def open(self, kernel_id: str, root: str, wire_key: str) -> MirrorView:
        """Listen for the files of one kernel's working directory, in the place of its last one.

        Raises:
            GPULeaseError: ``not_mirrored``, ``no_ports``.
        """
        with self._lock:
            self._close(kernel_id)
            if not self._lies_inside(root):
                raise GPULeaseError(
                    "not_mirrored",
                    f"Files in {root} are not on the GPU.",
                    next_step=f"Work in a directory below {self.place}."
                    if self.place
                    else "They need not be mirrored: home is mounted there.",
                )
            path = Path(root)
            path.mkdir(parents=True, exist_ok=True)
            found = self._roots.setdefault(path, MirrorRoot(path))
            (port,) = self._ports.take(1, self._ip)
            end = AwayEnd(found, MirrorLimits.of(self._limit))
            endpoint = end.start(wire_key, host=self._ip, port=port)
            self._ends[kernel_id] = (end, port)
        return MirrorView(address=endpoint.address, key=endpoint.server_key, limit=self._limit)

    def close(self, kernel_id: str) -> None:
        """Stop listening for one kernel; its files stay."""
        with self._lock:
            self._close(kernel_id)

    def close_all(self) -> None:
        """Stop listening."""
        with self._lock:
            for kernel_id in list(self._ends):
                self._close(kernel_id)

    def _close(self, kernel_id: str) -> None:
        end, port = self._ends.pop(kernel_id, (None, 0))
        if end is not None:
            end.close()
            self._ports.give_back([port])

    def _lies_inside(self, path: str) -> bool:
        inside = Path(os.path.normpath(path))
        return bool(self.place) and inside.is_absolute() and inside.is_relative_to(self.place)
