"""The companion's stdout and stderr.

Unlike ipykernel's, flushing what was flushed already costs nothing.  ipykernel flushes four times
for each cell, and each time waits for another thread.
"""

from __future__ import annotations

from typing import Any

from ipykernel.iostream import OutStream


class QuietStream(OutStream):
    """A stream that knows whether something was written since its last flush."""

    _written = False

    def write(self, string: str) -> Any:
        """Write; any thread, also those that copy what subprocesses write."""
        self._written = True
        return super().write(string)

    def flush(self) -> None:
        """Send what was written, in order with all else that is shown, and wait until it left."""
        if self._written:
            # First: what another thread writes meanwhile is for the next flush.
            self._written = False
            super().flush()  # type: ignore[no-untyped-call]
