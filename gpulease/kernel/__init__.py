"""Runs in the home kernel: route, gate, output relay, magics.

This module is imported by every kernel of a hub at start, so it imports nothing heavy: the rest
is loaded when IPython loads the extension, and most of that when the first GPU cell runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpulease.kernel.extension import Extension

_extension: Extension | None = None


def autoload() -> None:
    """Load the extension into the running IPython kernel; nothing where there is none."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell is not None and hasattr(shell, "kernel"):
        shell.extension_manager.load_extension("gpulease")


def load_ipython_extension(shell: Any) -> None:
    """Install gpulease in ``shell`` (``%load_ext gpulease``); it must be a kernel's."""
    global _extension  # noqa: PLW0603 - one kernel, one extension
    from gpulease.kernel.extension import Extension

    if _extension is not None:
        return
    _extension = Extension(shell)
    from gpulease.errors import GPULeaseError
    from gpulease.sides.versions import check_python

    try:
        check_python()
    except GPULeaseError as error:
        print(f"gpulease: {error}")  # noqa: T201 - the answer to `%load_ext gpulease`


def unload_ipython_extension(shell: Any) -> None:  # noqa: ARG001
    """Take everything back (``%unload_ext gpulease``)."""
    global _extension  # noqa: PLW0603
    if _extension is not None:
        _extension.unload()
        _extension = None


def perform(number: int) -> None:
    """Run what stands behind a routed cell; called by the text that replaced it."""
    assert _extension is not None
    _extension.wrapper.perform(number)
