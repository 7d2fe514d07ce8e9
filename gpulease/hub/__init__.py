"""Runs inside JupyterHub: the spawners and ``setup_gpulease(c)``.

In ``jupyterhub_config.py``, after the site's own settings::

    from gpulease.hub import setup_gpulease

    setup_gpulease(c, service_url="http://127.0.0.1:9980", service_token="...")

On the hub's own culler (``jupyterhub-idle-culler``): nothing needs to be set.  While a lease is
busy the service notes activity for its server at the hub, up to the policy's cap, so a silent
three-hour GPU cell does not get its server culled; a tab left open notes none, so an abandoned
server is.  A server that is stopped or culled ends its lease.  A site's ``cull_arbiter_hook`` sees
the same: ``inactive`` is small where a lease is busy.
"""

from __future__ import annotations

from typing import Any

from gpulease.hub.setup import setup_gpulease
from gpulease.hub.spawner import GPULeaseSpawnerMixin, LocalGPULeaseSpawner
from gpulease.hub.wrapping import wrap_spawner

__all__ = [
    "GPULeaseSpawner",
    "GPULeaseSpawnerMixin",
    "LocalGPULeaseSpawner",
    "setup_gpulease",
    "wrap_spawner",
]


def __getattr__(name: str) -> Any:
    """Import the spawner for Kubernetes when it is asked for: it needs KubeSpawner."""
    if name == "GPULeaseSpawner":
        from gpulease.hub.kubernetes import GPULeaseSpawner

        return GPULeaseSpawner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
