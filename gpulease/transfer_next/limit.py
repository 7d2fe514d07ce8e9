"""A bound on what a look may pack, in bytes: counted, so it is the same on a busy machine."""

from __future__ import annotations

import io
from typing import Any

from .refuse import RefusedError


class Limit:
    """What may still be packed."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, cost: int) -> None:
        """Count bytes; raises RefusedError where no more are left."""
        self.left -= cost
        if self.left < 0:
            raise RefusedError("more than may be looked at")


class LimitedFile(io.BytesIO):
    """A stream within a limit."""

    def __init__(self, limit: Limit) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: Any, /) -> int:
        """Write what the limit lets pass."""
        self._limit.spend(memoryview(data).nbytes)
        return super().write(data)


class LimitedBuffers(list[Any]):
    """Buffers beside a stream within a limit."""

    def __init__(self, limit: Limit) -> None:
        super().__init__()
        self._limit = limit

    def append(self, buffer: Any, /) -> None:
        """Take what the limit lets pass."""
        self._limit.spend(buffer.raw().nbytes)
        super().append(buffer)
