"""Where gpulease's own log lines of a kernel go: to the kernel's log, never under a cell.

A notebook's ``logging.basicConfig(level=INFO)`` gives the root logger a handler that writes into
the running cell, and what gpulease does beside that cell is no part of its output.
"""

from __future__ import annotations

import logging
from typing import Any

_OURS = "gpulease"


class ToKernel(logging.Handler):
    """Passes records on to the handlers of a kernel's log, which write past the notebook.

    At least warnings, whatever the level of that log: they say what to look for after a failure.
    """

    def __init__(self, log: Any) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        if record.levelno < min(logging.WARNING, self._log.getEffectiveLevel()):
            return
        for handler in self._log.handlers:
            if record.levelno >= handler.level:
                handler.handle(record)


def keep_from_cells(kernel: Any) -> None:
    """Send our records to the log of ``kernel`` alone."""
    show_in_cells()
    logger = logging.getLogger(_OURS)
    logger.addHandler(ToKernel(kernel.log))
    logger.propagate = False


def show_in_cells() -> None:
    """Undo it."""
    logger = logging.getLogger(_OURS)
    for handler in [each for each in logger.handlers if isinstance(each, ToKernel)]:
        logger.removeHandler(handler)
    logger.propagate = True
