"""Where a CurveZMQ server is, and a key pair; the secret half never leaves its process."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Endpoint:
    """Where a server listens: ``tcp://host:port`` and its public key (Z85)."""

    address: str
    server_key: str


@dataclass(frozen=True)
class KeyPair:
    """A key pair in Z85."""

    public: str
    secret: str = field(repr=False)
