"""A supervisor's settings for its lease: one JSON line on stdin, and its checks.

The token stays in this object or in its file: never in a command line, the environment or a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpulease.companion.parking import PARK_EXPIRY, PARK_LIMIT, Parking
from gpulease.errors import GPULeaseError
from gpulease.sides.environment import is_lease_id


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
