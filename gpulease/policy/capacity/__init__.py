"""What is there and what is free: devices, which of them fit together, what is left of a pool."""

from __future__ import annotations

from gpulease.policy.capacity.devices import (
    coming_devices,
    free_devices,
    grantable,
    in_service,
    known_devices,
    leaving_devices,
    pool_sizes,
    usable,
    with_drained,
)

__all__ = [
    "coming_devices",
    "free_devices",
    "grantable",
    "in_service",
    "known_devices",
    "leaving_devices",
    "pool_sizes",
    "usable",
    "with_drained",
]
