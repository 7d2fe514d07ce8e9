"""A message of the transfer wire, and the reply that somebody waits for.

Owns the two shapes and the JSON head; it knows no sockets.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpulease.errors import GPULeaseError


@dataclass
class Message:
    """A complete message: ``body`` is its JSON, ``blobs`` writable memory of this process."""

    number: int
    kind: str
    body: dict[str, Any]
    blobs: list[Any] = field(default_factory=list)
    reply_to: int | None = None


class Pending:
    """The reply to come; ``wait`` may be interrupted."""

    def __init__(self, number: int, progress: Callable[[int, int], None] | None) -> None:
        self.number = number
        self.progress = progress
        self.done = threading.Event()
        self.message: Message | None = None
        self.error: GPULeaseError | None = None

    def wait(self, seconds: float | None = None) -> Message | None:
        """Return the reply, or None after ``seconds``; raises what the other side refused with."""
        if not self.done.wait(seconds):
            return None
        if self.error is not None:
            raise self.error
        return self.message

    def finish(self, message: Message | None, error: GPULeaseError | None) -> None:
        """Let the waiting caller go on."""
        self.message, self.error = message, error
        self.done.set()


def header(**fields: Any) -> bytes:
    """Return the first frame of a message."""
    return json.dumps(fields).encode()


def gone_error() -> GPULeaseError:
    """Return what waiting callers get when the other side is lost."""
    return GPULeaseError(
        "companion_gone",
        "The companion beside the GPU is gone.",
        next_step="Run the cell again: it gets a new companion.",
    )


def withdrawn_error() -> GPULeaseError:
    """Return what a receiver gets when the sender took its offer back."""
    return GPULeaseError("transfer_abandoned", "The other side began to compute again.")
