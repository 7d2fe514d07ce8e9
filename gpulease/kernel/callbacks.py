"""Callbacks of the notebook's page that run at home, on the main thread or on a subshell.

They change variables as a cell does, and no cell's gate sees it: between cells, and on a subshell
(ipykernel 7) also while a GPU cell runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

_HANDLED = ("comm_open", "comm_msg", "comm_close")
#: Comms of gpulease's own, whose handlers touch no variable.
OWN_TARGET = "gpulease"


class Callbacks:
    """Calls ``ran`` after each message of the page that code of the person's may have handled."""

    def __init__(self, kernel: Any, ran: Callable[[], None]) -> None:
        self._kernel = kernel
        self._ran = ran
        self._handlers = {kind: kernel.shell_handlers[kind] for kind in _HANDLED}
        for kind, handler in self._handlers.items():
            kernel.shell_handlers[kind] = self._watched(handler)

    def remove(self) -> None:
        """Watch no more."""
        self._kernel.shell_handlers.update(self._handlers)

    def _watched(self, handler: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
        async def watched(stream: Any, ident: Any, message: Any) -> None:
            own = self._is_own(message["content"])
            try:
                found = handler(stream, ident, message)
                if asyncio.iscoroutine(found):
                    await found
            finally:
                if not own:
                    self._ran()

        return watched

    def _is_own(self, content: dict[str, Any]) -> bool:
        """Return whether gpulease itself handles the message, or the companion does."""
        comm = self._kernel.comm_manager.comms.get(content["comm_id"])
        target = getattr(comm, "target_name", content.get("target_name"))
        return target == OWN_TARGET or bool(getattr(comm, "is_relayed", False))
