"""Home's end of the connection: asking the companion, and when there is none.

Memory is checked before anything is received.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.errors import GPULeaseError
from gpulease.sides import memory
from gpulease.sizes import size_text
from gpulease.wire.connection import Wire
from gpulease.wire.message import Message, gone_error

from . import pieces
from .api import Progress

log = logging.getLogger(__name__)


class Peer:
    """At most one wire.  ``available`` gives the bytes this process may still take."""

    def __init__(self, margin: int, available: memory.Available) -> None:
        self._margin = margin
        self._available = available
        self.wire: Wire | None = None

    def open(self, endpoint: Endpoint, keys: KeyPair) -> None:
        """Connect; an earlier wire is closed."""
        self.close()
        wire = Wire(self._ignore, self._accept, memory=pieces.memory_for)
        wire.connect(endpoint, keys)
        self.wire = wire

    def close(self) -> None:
        """End the wire, if there is one."""
        if self.wire is not None:
            self.wire.close()
            self.wire = None

    @property
    def connected(self) -> bool:
        """True while a companion is reachable."""
        return self.wire is not None and not self.wire.broken

    def need(self) -> Wire:
        """Return the wire; raises ``companion_gone``."""
        if self.wire is None or self.wire.broken:
            raise gone_error()
        return self.wire

    def ask(
        self,
        kind: str,
        body: dict[str, Any],
        blobs: Sequence[Any] = (),
        *,
        seconds: float | None = None,
        progress: Progress | None = None,
    ) -> Message:
        """Return the reply to a request; raises its refusal, or ``companion_gone``."""
        wire = self.need()
        show = (lambda done, total: progress("", done, total)) if progress is not None else None
        pending = wire.request(kind, body, blobs, show)
        try:
            reply = pending.wait(seconds)
        except KeyboardInterrupt:
            wire.cancel(pending)
            raise
        if reply is None:
            wire.cancel(pending)
            raise gone_error()
        return reply

    def room(self) -> int:
        """Return how many bytes a value may have to be accepted: it, a staging copy, a margin."""
        return (self._available() - self._margin) // 2

    def _ignore(self, message: Message) -> None:
        if message.kind != "cancel":
            log.warning("transfer: the companion asked for %s; dropped", message.kind)

    def _accept(self, total: int) -> GPULeaseError | None:
        """Refuse what does not fit in memory."""
        return None if total <= self.room() else self.too_big(total)

    def too_big(self, total: int) -> GPULeaseError:
        """Return the refusal of a value that does not fit in memory."""
        free = self._available()
        return GPULeaseError(
            "too_big_for_home",
            f"{size_text(total)} do not fit into the home kernel's memory "
            f"({size_text(free)} are free).",
            next_step="Delete something in your notebook, or reduce the value on the GPU first.",
            numbers={"bytes": total, "free": free},
        )
