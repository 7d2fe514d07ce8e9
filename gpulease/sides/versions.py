"""Which Python and packages this process runs, as the other side and the service are told."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpulease.protocol.asks import Environment

#: Packages whose objects travel between the two sides.
TRAVELLING = (
    "cloudpickle", "ipython", "ipywidgets", "matplotlib", "numpy", "pandas", "scikit-learn",
    "scipy", "torch", "tqdm",
)  # fmt: skip


def python_version() -> str:
    """Return it as "3.11.7"."""
    return ".".join(str(part) for part in sys.version_info[:3])


def environment() -> Environment:
    """Return what this process may run now; packages that are not installed are left out.

    Read anew each time, at a lease's start: a notebook installs packages while it runs.
    """
    return {
        "python": python_version(),
        "executable": sys.executable,
        "packages": {name: found for name, found in versions(TRAVELLING).items() if found},
    }


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the installed versions, "" for what is not installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found
