"""Follows the leases of one person by the service's live events."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from gpulease.demo.browse import Browser
from gpulease.errors import GPULeaseError


class LeaseWatch:
    """Keeps the newest lease of the browser's person and every state it was seen in.

    ``user``: what the service calls them, where that is not what their hub does.
    """

    def __init__(self, browser: Browser, user: str = "") -> None:
        self._browser = browser
        self._user = user
        self._leases: dict[str, dict[str, Any]] = {}
        self._order: list[str] = []
        #: (lease id, state) in the order seen.
        self.history: list[tuple[str, str]] = []
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._follow())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def lease(self) -> dict[str, Any] | None:
        """The newest lease, ended or not."""
        return self._leases[self._order[-1]] if self._order else None

    @property
    def state(self) -> str:
        """Its state, "" where there is none."""
        return str(self.lease["state"]) if self.lease else ""

    @property
    def follows(self) -> bool:
        """Whether the service's events still come; what is shown is old otherwise."""
        return self._task is not None and not self._task.done()

    async def wait_for(self, state: str, *, seconds: float) -> dict[str, Any]:
        """Return the newest lease once it is, or since the last call was, in ``state``.

        Raises:
            GPULeaseError: ``check_failed`` when that did not happen in time.
        """
        try:
            async with asyncio.timeout(seconds):
                while not self.has_been(state):
                    self._changed.clear()
                    await self._wake()
        except TimeoutError:
            raise GPULeaseError(
                "check_failed",
                f"The lease did not become {state} within {seconds:.0f} s; it went through"
                f" {[seen for _, seen in self.history] or 'nothing'}.",
                status=500,
            ) from None
        assert self.lease is not None
        return self.lease

    def has_been(self, state: str) -> bool:
        """Tell whether the newest lease is, or was, in ``state``."""
        return bool(self._order) and (self._order[-1], state) in self.history

    async def _wake(self) -> None:
        assert self._task is not None
        waiting = asyncio.ensure_future(self._changed.wait())
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()  # raises what ended it
            raise GPULeaseError("events_lost", "The service closed its event channel.", status=500)

    async def _follow(self) -> None:
        async for event in self._browser.service_events():
            leases = event["leases"] if event["type"] == "snapshot" else [event.get("lease")]
            for lease in sorted((each for each in leases if each), key=lambda it: it["created"]):
                if lease["user"] == (self._user or self._browser.user):
                    self._take(lease)
            self._changed.set()

    def _take(self, lease: dict[str, Any]) -> None:
        if lease["id"] not in self._leases:
            self._order.append(lease["id"])
        self._leases[lease["id"]] = lease
        seen = (lease["id"], lease["state"])
        if not self.history or self.history[-1] != seen:
            self.history.append(seen)
