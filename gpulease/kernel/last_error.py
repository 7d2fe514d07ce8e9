"""The error that IPython remembers, one on both sides (``sys.last_value`` and its kin).

Owns how home gets what a GPU cell raised, the very exception and not only its text, and how a GPU
cell that asks gets home's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.kernel.outputs import CARRIER
from gpulease.kernel.remote_error import RemoteError
from gpulease.transfer.values.state.last_error import frames_of

_ASKS = re.compile(r"(?<!\w)(?:last_(?:value|type|traceback|exc)|print_last|post_mortem|pm)(?!\w)")
_MODULE = "gpulease.transfer.values.state.last_error"


class LastError:
    """Main thread only; ``fetch`` gets the companion's last error and its frames."""

    def __init__(self, fetch: Callable[[], Any]) -> None:
        self._fetch = fetch
        self._remote: RemoteError | None = None

    def raised(self, error: BaseException) -> None:
        """A GPU cell ended with ``error``: bring what it raised, where that can travel."""
        self._remote = None
        if isinstance(error, RemoteError):
            with suppress(GPULeaseError):  # it has a part that stays: its name and text are here
                error.original, error.frames = self._fetch()
            self._remote = error

    def as_remote(self, error: BaseException | None) -> BaseException | None:
        """Return what shows the companion's traceback for ``error``, where a GPU cell raised it."""
        remote: Any = self._remote
        return remote if remote is not None and error is remote.original else error

    def for_away(self, source: str, values: dict[str, Any]) -> list[str]:
        """Return the lines of a program that let a GPU cell find home's last error.

        ``values`` gets what they read.  There are none where the cell does not ask, and where it
        was a GPU cell's error that could not come here: the companion has it.
        """
        error = getattr(sys, "last_value", None)
        if not isinstance(error, BaseException) or isinstance(error, RemoteError):
            return []
        if not _ASKS.search(source):
            return []
        values["last error"] = error
        frames = [tuple(frame) for frame in frames_of(error.__traceback__)]
        there = f"__import__({_MODULE!r}, fromlist=['remember'])"
        return [f"{there}.remember({CARRIER}['last error'], {frames!r})"]
