"""Devices of this machine, leased to the notebook servers that run on it."""

from gpulease.providers.local.provider import LocalProvider, pool_of

__all__ = ["LocalProvider", "pool_of"]
