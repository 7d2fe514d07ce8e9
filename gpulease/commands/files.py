"""The files that a command reads or writes for somebody, and what is said where one cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpulease.errors import GPULeaseError


@contextmanager
def usable(file: Path, done: str, next_step: str) -> Iterator[None]:
    """Refuse a file that cannot be ``done``: used, or written.

    Raises:
        GPULeaseError: ``unreadable_file``.
    """
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8 text"
        if isinstance(error, OSError):
            why = error.strerror or type(error).__name__
        raise GPULeaseError(
            "unreadable_file", f"{file} cannot be {done}: {why}.", next_step=next_step
        ) from error
