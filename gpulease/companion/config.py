"""What a supervisor is told about its lease.

Owns the shape of the one JSON line on stdin and its checks.  The token stays in this object:
never in a command line, the environment or a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpulease.companion.environment import is_lease_id
from gpulease.errors import GPULeaseError


@dataclass(frozen=True)
class SupervisorConfig:
    """One lease, as its supervisor knows it.

    Attributes:
        lease_id: names the lease; also its mark.
        attempt: which start of the lease this is.
        token: credential for the supervisor channel.
        service_url: the lease service's public prefix, with scheme and host; "" for no hub.
        devices: for ``CUDA_VISIBLE_DEVICES``; None leaves what is there (no hub).
        park_dir: where values that cannot go home are parked; "" for nowhere.
        drain_max: seconds a drain may take.
        hard_end: ISO time at which the lease ends even when the service is silent; "" unknown.
        ip: address of this machine to bind to.
    """

    lease_id: str
    attempt: int = 1
    token: str = field(default="", repr=False)
    service_url: str = ""
    devices: str | None = None
    park_dir: str = ""
    drain_max: float = 60.0
    hard_end: str = ""
    ip: str = "127.0.0.1"

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> SupervisorConfig:
        """Check what stdin said.

        Raises:
            GPULeaseError: ``malformed``, naming the member.
        """
        wanted = {
            "lease_id": str, "attempt": int, "token": str, "service_url": str, "park_dir": str,
            "drain_max": (int, float), "hard_end": str, "ip": str, "devices": (str, type(None)),
        }  # fmt: skip
        for name, kind in wanted.items():
            if name in found and not isinstance(found[name], kind):  # type: ignore[arg-type]
                raise GPULeaseError("malformed", f"The supervisor's {name} has the wrong type.")
        if not is_lease_id(str(found.get("lease_id", ""))):
            raise GPULeaseError("malformed", "The supervisor was not told a valid lease id.")
        return cls(**{name: found[name] for name in wanted if name in found})

    @property
    def channel_url(self) -> str:
        """Address of the supervisor channel (``ws`` or ``wss``); "" without a service."""
        if not self.service_url:
            return ""
        base = self.service_url.rstrip("/")
        return f"ws{base.removeprefix('http')}/api/leases/{self.lease_id}/supervisor"
