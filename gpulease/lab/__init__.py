"""The Jupyter server extension: between the lease service and one server's kernels.

It reports to the service, passes messages on, and starts what it was granted.  Local companions'
supervisors are its children.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Name the extension to jupyter_server, which is imported only here."""
    from gpulease.lab.extension import GPULeaseLab

    return [{"module": "gpulease.lab", "app": GPULeaseLab}]
