"""A supervisor's settings for its lease: one JSON line on stdin, its checks, and where it parks.

The token stays in this object or in its file: never in a command line, the environment or a log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpulease.errors import GPULeaseError
from gpulease.sides.environment import is_lease_id

#: Bytes that one user's parked values may take, and seconds that they are kept.
PARK_LIMIT = 2 * 2**30
PARK_EXPIRY = 7 * 86400.0
#: Kept of a pod's grace for ending processes and saying goodbye (seconds).
END_SECONDS = 4.0
_DEFAULT_SERVER = "@default"  # "@" is quoted in names, so no server can be called this


@dataclass(frozen=True)
class SupervisorConfig:
    """One lease, as its supervisor knows it.

    Attributes:
        lease_id: names the lease; also its mark.
        attempt: which start of the lease this is.
        token: credential for the supervisor channel.
        service_url: the lease service's public prefix, with scheme and host; "" for no hub.
        devices: for ``CUDA_VISIBLE_DEVICES``; None leaves what is there (no hub).
        user: whose lease it is.
        server: that user's server; "" is the default one.
        park_dir: where values that cannot go home are parked; "" for nowhere.
        park_limit: bytes that the user's parked values may take.
        park_expiry: seconds after which parked values are removed.
        drain_max: seconds a drain may take.
        hard_end: ISO time at which the lease ends even when the service is silent; "" unknown.
        ip: address of this machine to bind to.
        ports: lowest and highest port to listen on; None lets the system choose.
        token_file: where the credential is read anew for each connection, in place of ``token``.
        grace: seconds from SIGTERM to SIGKILL, used to drain; 0 ends at once.
        mirror: directory that takes the place of a home that is not mounted; "" where it is.
        mirror_limit: bytes that a mirror may hold.
        in_container: the machine is the lease's own: its environment, paths and devices count.
        count: how many GPUs it has; 0 is not known.
        nodes: into so many equal parts they are divided.
        rank: which of these nodes this is, where each has a machine of its own.
    """

    lease_id: str
    attempt: int = 1
    token: str = field(default="", repr=False)
    service_url: str = ""
    devices: str | None = None
    user: str = ""
    server: str = ""
    park_dir: str = ""
    park_limit: int = PARK_LIMIT
    park_expiry: float = PARK_EXPIRY
    drain_max: float = 60.0
    hard_end: str = ""
    ip: str = "127.0.0.1"
    ports: tuple[int, int] | None = None
    token_file: str = ""
    grace: float = 0.0
    mirror: str = ""
    mirror_limit: int = 2 * 2**30
    in_container: bool = False
    count: int = 0
    nodes: int = 1
    rank: int = 0

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> SupervisorConfig:
        """Check what stdin said.

        Raises:
            GPULeaseError: ``malformed``, naming the member.
        """
        wanted = {
            "lease_id": str, "attempt": int, "token": str, "service_url": str, "park_dir": str,
            "user": str, "server": str, "park_limit": int, "park_expiry": (int, float),
            "drain_max": (int, float), "hard_end": str, "ip": str, "devices": (str, type(None)),
            "count": int, "nodes": int,
        }  # fmt: skip
        for name, kind in wanted.items():
            if name in found and not isinstance(found[name], kind):  # type: ignore[arg-type]
                raise GPULeaseError("malformed", f"The supervisor's {name} has the wrong type.")
        if not is_lease_id(str(found.get("lease_id", ""))):
            raise GPULeaseError("malformed", "The supervisor was not told a valid lease id.")
        return cls(**{name: found[name] for name in wanted if name in found})

    def credential(self) -> str:
        """Return what proves this supervisor to the service now.

        Raises:
            OSError: the file cannot be read at present.
        """
        return Path(self.token_file).read_text().strip() if self.token_file else self.token

    @property
    def launches(self) -> bool:
        """Whether the lease's further nodes are other machines, with supervisors of their own."""
        return self.in_container and self.nodes > 1

    @property
    def parking(self) -> Parking:
        """Where this lease's values are parked."""
        return Parking(
            self.park_dir, self.user or "@me", self.server, self.park_limit, self.park_expiry
        )

    @property
    def channel_url(self) -> str:
        """Address of the supervisor channel (``ws`` or ``wss``); "" without a service."""
        if not self.service_url:
            return ""
        base = self.service_url.rstrip("/")
        return f"ws{base.removeprefix('http')}/api/leases/{self.lease_id}/supervisor"


@dataclass(frozen=True)
class Parking:
    """The parked values of one user's server: those that could not be copied back.

    They lie in ``ROOT/USER/SERVER/KERNEL/values``: directories 0700, the file 0600.

    Attributes:
        root: "" where nothing can be parked.
        user: whose.
        server: "" is the default server.
        limit: bytes that all parked values of the user may take together.
        expiry: seconds after which parked values are removed.
    """

    root: str = ""
    user: str = ""
    server: str = ""
    limit: int = PARK_LIMIT
    expiry: float = PARK_EXPIRY

    def file(self, kernel_id: str) -> Path | None:
        """Return the file of one home kernel; ``None`` where nothing can be parked."""
        if not self.root:
            return None
        return (
            self._user / (_segment(self.server) or _DEFAULT_SERVER) / _segment(kernel_id) / "values"
        )

    def prepare(self, kernel_id: str) -> int:
        """Make the directory of one home kernel; return how many bytes may be parked there.

        What is parked there already does not count: it is replaced.

        Raises:
            OSError: the directory cannot be made.
        """
        file = self.file(kernel_id)
        if file is None:
            return 0
        directory = Path(self.root).expanduser()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in file.parent.relative_to(directory).parts:
            directory /= part
            directory.mkdir(mode=0o700, exist_ok=True)
            directory.chmod(0o700)
        taken = 0
        for other in self._files():
            if other.parent != file.parent:
                with suppress(FileNotFoundError):
                    taken += other.stat().st_size
        return max(0, self.limit - taken)

    def drop(self, kernel_id: str) -> None:
        """Remove what one home kernel has parked."""
        file = self.file(kernel_id)
        if file is not None:
            _remove(file)

    def sweep(self, now: float | None = None) -> int:
        """Remove the user's files that are older than ``expiry``; return how many."""
        oldest = (time.time() if now is None else now) - self.expiry
        removed = 0
        for file in list(self._files()):
            with suppress(OSError):
                if file.stat().st_mtime < oldest:
                    _remove(file)
                    removed += 1
        return removed

    @property
    def _user(self) -> Path:
        return Path(self.root).expanduser() / _segment(self.user)

    def _files(self) -> Iterator[Path]:
        """The user's files, half-written ones too."""
        if self.root and self.user:
            yield from self._user.glob("*/*/values*")


def _segment(name: str) -> str:
    """Return a name as one part of a path that cannot lead elsewhere."""
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E") if quoted.startswith(".") else quoted


def _remove(file: Path) -> None:
    with suppress(FileNotFoundError):
        file.unlink()
    with suppress(OSError):  # another file lies there still
        file.parent.rmdir()
