"""The error that IPython remembers, one on both sides (``sys.last_value`` and its kin).

Home gets the very exception that a GPU cell raised, not only its text.  A GPU cell that asks gets
home's; one that does not ask finds no older one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.kernel.outputs import CARRIER
from gpulease.kernel.remote_error import RemoteError
from gpulease.sides.last_error import current, frames_of

_ASKS = re.compile(r"(?<!\w)(?:last_(?:value|type|traceback|exc)|print_last|post_mortem|pm)(?!\w)")
_MODULE = "gpulease.sides.last_error"
_THERE = f"__import__({_MODULE!r}, fromlist=['remember'])"
#: Some error, and not home's.
_UNKNOWN: Any = object()


class LastError:
    """Main thread only; ``fetch`` gets the companion's last error and its frames."""

    def __init__(self, fetch: Callable[[], Any]) -> None:
        self._fetch = fetch
        self._remote: RemoteError | None = None
        #: The companion's last error as home knows it, None where it has none.
        self._there: BaseException | None = None
        self._companion: object = None

    def raised(self, error: BaseException) -> None:
        """A GPU cell ended with ``error``: bring what it raised, where that can travel."""
        self._remote = None
        if isinstance(error, RemoteError):
            with suppress(GPULeaseError):  # it has a part that stays: its name and text are here
                error.original, error.frames = self._fetch()
            self._remote = error
        self._there = error.original or error if isinstance(error, RemoteError) else _UNKNOWN

    def told(self) -> None:
        """The companion ran the lines of ``for_away``."""
        self._there = current()

    def tidy(self) -> None:
        """A home cell ended: keep no error, and no frames of it, that nobody can ask for."""
        if self._there is not None and self._there is not current():
            self._there = _UNKNOWN

    def as_remote(self, error: BaseException | None) -> BaseException | None:
        """Return what shows the companion's traceback for ``error``, where a GPU cell raised it."""
        remote: Any = self._remote
        return remote if remote is not None and error is remote.original else error

    def for_away(self, source: str, values: dict[str, Any], companion: object) -> list[str]:
        """Return the lines of a program that let a GPU cell find home's last error.

        ``values`` gets what they read.  A cell that does not ask gets none, and no older one
        either: code that it calls finds out that home's is newer.  There are no lines where the
        companion has home's.
        """
        if companion is not self._companion:
            self._companion, self._there = companion, None
        error = current()
        if error is None or isinstance(error, RemoteError) or not _ASKS.search(source):
            return [] if error is self._there else [f"{_THERE}.forget({error is not None})"]
        values["last error"] = error
        frames = [tuple(frame) for frame in frames_of(error.__traceback__)]
        return [f"{_THERE}.remember({CARRIER}['last error'], {frames!r})"]
