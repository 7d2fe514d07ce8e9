"""Whether a home kernel and a companion fit together.

Pure: versions in, a refusal or sentences out.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpulease.errors import GPULeaseError
from gpulease.protocol.names import PROTOCOL_VERSION, is_understood
from gpulease.version import __version__


def check_protocol(home: str) -> None:
    """Refuse another major version of the protocol (``protocol_mismatch``)."""
    if not is_understood(home):
        raise GPULeaseError(
            "protocol_mismatch",
            f"The notebook speaks protocol {home}, the lease {PROTOCOL_VERSION}.",
            next_step="Install the same version of gpulease on both sides.",
            numbers={"home": home, "lease": PROTOCOL_VERSION},
        )


def check_version(home: str, away: str = __version__) -> None:
    """Refuse another minor version of gpulease (``version_mismatch``).

    What is sent for variables may change from one to the next, and takes no translation.
    """
    if not same_minor(home, away):
        raise GPULeaseError(
            "version_mismatch",
            f"The notebook has gpulease {home or 'of an unknown version'}, the lease {away}.",
            next_step="Install the same version of gpulease on both sides, then restart the kernel."
            " After an upgrade of the site: restart your server.",
            numbers={"home": home, "lease": away},
        )


def check_python(*, home: str, away: str) -> None:
    """Refuse another minor version of Python (``python_mismatch``): code would not load."""
    if not same_minor(home, away):
        raise python_mismatch(
            home=home, away=away, next_step="Use a kernel with the same minor version of Python."
        )


def same_minor(home: str, away: str) -> bool:
    """Whether two versions have the same major and minor number ("3.11.7" and "3.11.2")."""
    return home.split(".")[:2] == away.split(".")[:2]


def python_mismatch(*, home: str, away: str, next_step: str) -> GPULeaseError:
    """Return the refusal of a notebook whose Python is not the lease's."""
    return GPULeaseError(
        "python_mismatch",
        f"The notebook runs Python {home}, the lease would run it on Python {away}.",
        next_step=next_step,
        numbers={"home": home, "lease": away},
    )


def check_packages(*, home: Mapping[str, str], away: Mapping[str, str]) -> list[str]:
    """Return a sentence for each package that is missing or differs on the GPU."""
    warnings = []
    for name, version in sorted(home.items()):
        other = away.get(name, "")
        if not other:
            warnings.append(f"{name} {version} is not installed on the GPU.")
        elif other != version:
            warnings.append(f"{name} is {version} here and {other} on the GPU.")
    return warnings
