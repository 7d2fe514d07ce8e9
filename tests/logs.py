"""Logs of what tests start: the report of a test that fails ends with their last lines."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LINES = 80

_open: list[Path] = []
_closed: list[Path] = []  # since the last test began


@contextmanager
def shown(log: Path) -> Iterator[None]:
    """Show the end of this log in the report of every test that fails while the block lasts.

    The reason why a hub answers "Internal Server Error" stands nowhere else.
    """
    _open.append(log)
    try:
        yield
    finally:
        _open.remove(log)
        _closed.append(log)


def add_to(report: pytest.TestReport) -> None:
    """Add what the logs say to the report of a test that failed; forget them once it has ended."""
    if report.failed:
        for log in (*_open, *_closed):
            report.sections.append((f"the end of {log.name}", _end_of(log)))
    if report.when == "teardown":
        _closed.clear()


def _end_of(log: Path) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-LINES:])
    except OSError as error:
        return f"(not read: {error})"
