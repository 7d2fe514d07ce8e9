"""The Jupyter server extension: between the lease service and one server's kernels.

Owns what one notebook server knows of its leases, and the local companions' supervisors, which
are its children.  Refuses to decide: it reports, passes on and starts what it was granted.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Name the extension to jupyter_server, which is imported only here."""
    from gpulease.lab.extension import GPULeaseLab

    return [{"module": "gpulease.lab", "app": GPULeaseLab}]
