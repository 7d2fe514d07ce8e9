"""Reading what a site wrote as an option of the service: sizes, files, and how a refusal reads."""

from __future__ import annotations

from pathlib import Path

from gpulease.errors import GPULeaseError
from gpulease.policy.units import parse_size


def size_option(name: str, given: str) -> int:
    """Return the bytes that the option ``name`` says.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    try:
        return parse_size(given)
    except ValueError:
        raise bad_option(name, given, "a size such as 2GiB") from None


def readable_file(name: str, given: str) -> str:
    """Return ``given``, the file that the option ``name`` says.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    if not Path(given).is_file():
        raise bad_option(name, given, "the path of a file that is there")
    return given


def bad_option(name: str, given: str, wanted: str) -> GPULeaseError:
    """Return the refusal of an option's value: which, what it is, and what it should be."""
    return GPULeaseError(
        "bad_option",
        f"{name} is {given!r}.",
        next_step=f"Give {wanted}.",
        numbers={"option": name.rpartition(".")[2]},
    )
