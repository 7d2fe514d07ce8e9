"""gpulease: ephemeral GPU leases for JupyterHub notebooks.

The notebook server has no GPU.  The GPU comes to the running kernel on request and leaves it again
as soon as it is idle, and not one variable is lost.
"""

from __future__ import annotations

from gpulease.version import __version__ as __version__


def load_ipython_extension(shell: object) -> None:
    """Install gpulease in a notebook kernel: ``%load_ext gpulease``."""
    from gpulease.kernel import load_ipython_extension as load

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """Take gpulease out of a notebook kernel: ``%unload_ext gpulease``."""
    from gpulease.kernel import unload_ipython_extension as unload

    unload(shell)
