"""Whether who talks to the service speaks its protocol."""

from __future__ import annotations

from gpulease.errors import GPULeaseError
from gpulease.protocol import PROTOCOL_VERSION, is_understood


def check_protocol(who: str, version: str, next_step: str) -> None:
    """Refuse another major version of the protocol.

    Raises:
        GPULeaseError: ``wrong_protocol`` (426).
    """
    if is_understood(version):
        return
    raise GPULeaseError(
        "wrong_protocol",
        f"{who} speaks protocol {version}, the lease service {PROTOCOL_VERSION}.",
        next_step=next_step,
        numbers={"client": version, "service": PROTOCOL_VERSION},
        status=426,
    )
