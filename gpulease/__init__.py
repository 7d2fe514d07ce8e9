"""gpulease: ephemeral GPU leases for JupyterHub notebooks.

The notebook server has no GPU.  The GPU comes to the running kernel on request and leaves it again
as soon as it is idle, and not one variable is lost.
"""

from __future__ import annotations

__version__ = "0.1.0"
