"""Which Python and packages this process runs, as reported to the other side and the service."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from typing import TYPE_CHECKING

from gpulease.errors import GPULeaseError

if TYPE_CHECKING:
    from gpulease.protocol.asks import Environment

#: Packages whose objects travel between the two sides.
TRAVELLING = (
    "cloudpickle", "ipython", "ipywidgets", "matplotlib", "numpy", "pandas", "scikit-learn",
    "scipy", "torch", "tqdm",
)  # fmt: skip


#: The newest Python on which the suite shows that values arrive as they were.
NEWEST = (3, 14)


def check_python(
    version: tuple[int, ...] = sys.version_info[:2],
    *,
    free_threaded: bool = bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
) -> None:
    """Refuse a Python on which a value could arrive as another one.

    Raises:
        GPULeaseError: which Python this is and which ones carry variables.
    """
    if version <= NEWEST and not free_threaded:
        return
    kind = "a free-threaded build of Python" if free_threaded else "Python"
    here, newest = (".".join(map(str, each)) for each in (version, NEWEST))
    raise GPULeaseError(
        "python_not_supported",
        f"Variables travel between notebook and GPU on Python 3.11 to {newest} only, "
        f"and this kernel runs {kind} {here}.",
        next_step="Choose a kernel with one of these, or ask your admin for one.",
        numbers={"python": here, "newest": newest},
    )


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
