"""Seeds for devices: what a notebook's ``torch.manual_seed`` at home means beside the GPU.

A seed counts when it was *set* since the last switch, not when its number changed: a cell that
seeds with the same number again starts again.
"""

from __future__ import annotations

import sys
from typing import Any

#: How often a seed was set at home, and to what.
Seed = tuple[int, int]


class Seeds:
    """One side's seeds of torch's devices; needs no device, and initialises none."""

    def __init__(self) -> None:
        self._now: Seed | None = None
        self._queued: Any = None
        self._pending: Seed | None = None

    def capture(self) -> Seed | None:
        """Return the last seed of this process or, where it set none, the one it was told."""
        if self._pending is not None:
            return self._pending
        queued = _queued()
        if queued is not None and queued is not self._queued:
            self._queued = queued
            count = self._now[0] if self._now is not None else 0
            self._now = (count + 1, sys.modules["torch"].initial_seed())
        return self._now

    def take(self, seed: Seed | None) -> None:
        """Remember a seed of the other side, for ``settle``."""
        if seed is not None and seed != self._now:
            self._pending = seed
            self.settle()

    def settle(self) -> None:
        """Seed the devices of this process, as soon as torch is there."""
        torch = sys.modules.get("torch")
        if self._pending is None or torch is None or not hasattr(torch, "manual_seed"):
            return
        torch.cuda.manual_seed_all(self._pending[1])  # waits for the first use of a device
        self._now, self._pending = self._pending, None
        self._queued = _queued()


def _queued() -> Any:
    """Return the call that seeds all devices once there is one: a new one each time it is asked.

    A process whose device is in use seeds it at once and queues nothing.
    """
    cuda = sys.modules.get("torch.cuda")
    tracker = getattr(cuda, "_lazy_seed_tracker", None)
    return getattr(tracker, "manual_seed_all_cb", None)
