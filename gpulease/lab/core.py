"""What happens in a notebook server between the lease service and the kernels.

An event comes in, the board takes it, kernels and front end are notified, a grant starts a
supervisor, an end ends it.  The parts are modules of their own.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from gpulease.channel.unix import UnixServer
from gpulease.channel.websocket import WebsocketClient
from gpulease.client import ServiceClient
from gpulease.companion.config import Parking
from gpulease.errors import GPULeaseError
from gpulease.lab.board import Board
from gpulease.lab.supervisors import Supervisors
from gpulease.protocol.asks import AskBody, Environment
from gpulease.protocol.service import MessageView
from gpulease.protocol.service_tls import trusted
from gpulease.system.background import BackgroundTasks

log = logging.getLogger("gpulease.lab")

_REPORT_SECONDS = 1.0
_LOOK_SECONDS = 30.0
_ENGLISH = "en"  # what the service speaks where nobody says another language
#: What is passed on as it is.  The front end lists a person's newest leases, what is reserved next
#: for their groups, and what is left of their budgets.  Both it and a kernel submit a notebook.
_CALLS = {
    "history": ("GET", "leases?mine=1&limit=20"),
    "reservations": ("GET", "reservations?limit=10"),
    "projects": ("GET", "projects"),
    "submit": ("POST", "runs"),
}


class Core:
    """One notebook server's part.

    Args:
        bus_path: where kernels reach it.
        service_url: the lease service; "" where there is no hub.
        token: the server's own token.
        standby: whether a supervisor is started ahead.
        alive: ids of the server's kernels that live; others (of nbconvert, say) only connect.
        notebooks: paths of the notebooks of kernels, by the kernel's id.
        on_change: called with every event that kernels get, for the front end.
        for_run: the server is for the run of a whole notebook: its next kernel goes on with the
            lease of one that failed.
    """

    def __init__(
        self,
        bus_path: Path,
        service_url: str,
        token: str,
        *,
        standby: bool,
        alive: Callable[[], Iterable[str]],
        on_change: Callable[[dict[str, Any]], None],
        notebooks: Callable[[], Awaitable[Mapping[str, str]]] | None = None,
        for_run: bool = False,
    ) -> None:
        self.board = Board()
        self.messages: list[MessageView] = []
        self._whose: dict[str, str | None] = {}
        self._language = _ENGLISH  # of the front end
        self._environments: dict[str, Environment] = {}  # of kernels
        self.bus = UnixServer(
            bus_path, self._greeting, self.call, "The notebook server failed", self._process_ended
        )
        self._alive = alive
        self._on_change = on_change
        self._notebooks = notebooks
        self._for_run = for_run
        self._parkings: set[Parking] = set()
        self._beside = BackgroundTasks(log, "the server extension's work failed")
        self._report_due: asyncio.TimerHandle | None = None
        self.client: ServiceClient | None = None
        self.upstream: WebsocketClient | None = None
        self.supervisors: Supervisors | None = None
        if service_url and token:
            client = self.client = ServiceClient(service_url, token)
            self.upstream = WebsocketClient(
                f"ws{service_url.rstrip('/').removeprefix('http')}/api/events",
                headers=lambda: client.headers,
                pushed=self.on_event,
                link=self.on_link,
                tls=trusted(service_url, os.environ),
            )
            self.supervisors = Supervisors(service_url, self._tell_service, standby=standby)

    async def open(self) -> None:
        """Listen to kernels, connect to the service, start a supervisor ahead."""
        await self.bus.open()
        if self.upstream is not None:
            self._beside.keep(self.upstream.run())
        if self.supervisors is not None:
            self._beside.keep(self.supervisors.open())

    def speak(self, language: str) -> None:
        """Have the service's sentences in the language that the front end is in, such as ``de``.

        One channel serves all kernels and pages of this server: the page opened last decides.
        """
        if self.client is not None and language != self._language:
            self._language = language
            self.client.speak(language)
            self._tell_service({"type": "language", "language": language})

    async def close(self, seconds: float = 5.0) -> None:
        """End what this server started and hang up."""
        if self.supervisors is not None:
            await self.supervisors.close(seconds)
        if self.upstream is not None:
            self.upstream.close()
        await self.bus.close()
        # Python logs a task that it has to destroy when it ends.  A thread of asyncio's that waits
        # for a child may be stopped while it logs, too: then the process waits for ever.
        await self._beside.end()

    def on_event(self, message: dict[str, Any]) -> None:
        """Take in a message of the service."""
        kind = message.get("type")
        if kind == "snapshot":
            gone = self.board.take_snapshot(message["leases"], message["classes"])
            self._take_messages(message.get("messages", []))
            self._tell_kernels(self._snapshot())
            for lease_id in gone:
                self._ended(lease_id)
            for lease_id in list(self.board.grants):
                self._granted(lease_id)
            self._look_whose()
        elif kind == "lease":
            self._tell_kernels({"event": "lease", "lease": self.board.take_lease(message["lease"])})
            lease_id = message["lease"]["id"]
            if lease_id in self.board.grants:
                self._granted(lease_id)
            elif message["lease"]["state"] == "ended":
                self._ended(lease_id)
            self._look_whose()
        elif kind == "classes":
            self.board.classes = list(message["classes"])
            self._tell_kernels({"event": "classes", "classes": self.board.classes})
        elif kind == "messages":
            self._take_messages(message["messages"])
        else:
            log.warning("the lease service said something unknown: %r", kind)

    def on_link(self, up: bool) -> None:
        """The events channel came up or was lost."""
        self.board.up = up
        self._tell_kernels({"event": "link", "up": up})
        if up:
            if self._language != _ENGLISH:
                self._tell_service({"type": "language", "language": self._language})
            self._report_kernels()
            for report in self.supervisors.reports() if self.supervisors else ():
                self._tell_service(report)

    def _process_ended(self, kernel_id: str) -> None:
        """A kernel's process is no more; one of the server's own may come back by a restart."""
        self.kernel_ended(kernel_id, for_good=kernel_id not in self._alive())

    def kernel_ended(self, kernel_id: str, *, for_good: bool) -> None:
        """A home kernel restarted or ended: its companion and parked values are dropped.

        With the last kernel that used it a lease ends: nobody is left to bring anything home.
        """
        self.board.forget_kernel(kernel_id)
        self._environments.pop(kernel_id, None)
        if self.supervisors is not None:
            self.supervisors.close_kernel(kernel_id)
        for parking in self._parkings:
            parking.drop(kernel_id)
        if for_good and not self._for_run:
            self._report_kernels()  # first: the service has the companion on another node closed
            for lease_id in self.board.left_by(kernel_id):
                self._beside.keep(self._end(lease_id))
        else:
            self.kernels_changed()

    async def _end(self, lease_id: str) -> None:
        assert self.client is not None
        try:
            await self.client.end(lease_id, force=True)
        except GPULeaseError as error:  # as an idle one it ends later
            log.info("lease %s, which no kernel uses, could not be ended: %s", lease_id, error)

    def kernels_changed(self) -> None:
        """Report the kernels soon; many changes make one report."""
        if self._report_due is None:
            loop = asyncio.get_running_loop()
            self._report_due = loop.call_later(_REPORT_SECONDS, self._report_kernels)

    async def call(self, kernel_id: str, name: str, args: dict[str, Any]) -> Any:
        """Answer a kernel's (or the front end's) call.

        Raises:
            GPULeaseError: ``no_hub``, ``malformed``, or what the service says.
        """
        if name in ("cell", "environment"):
            return self._told(kernel_id, name, args)
        if name == "sticky":
            return self.board.turn_sticky(kernel_id, on=bool(args.get("on")))
        if name == "leases":
            return self.board.all_shown()
        if self.client is None:
            raise GPULeaseError(
                "no_hub",
                "This notebook server belongs to no hub with a lease service.",
                next_step="Use `%gpu connect local`, or `%gpu connect FILE`.",
            )
        if name == "ask":
            wanted = {"kernel_id": kernel_id or None, "origin": "magic", **args}
            if kernel_id in self._environments:
                wanted["environment"] = self._environments[kernel_id]
            lease = await self.client.ask(cast("AskBody", wanted))
            if kernel_id:
                self.board.use(lease["id"], kernel_id)
            return lease
        if name in _CALLS:
            method, path = _CALLS[name]
            return await self.client.call(method, path, args if method == "POST" else None)
        if name == "connection" and kernel_id:
            self.board.use(_lease_id(args), kernel_id)
        return await self._call_about(_lease_id(args), self.client, kernel_id, name, args)

    @staticmethod
    async def _call_about(
        lease_id: str, client: ServiceClient, kernel_id: str, name: str, args: Mapping[str, Any]
    ) -> Any:
        if name == "lease":
            return await client.lease(lease_id)
        if name == "keep":
            return await client.keep(lease_id)
        if name == "upgrade":
            return await client.upgrade(lease_id)
        if name == "end":
            return await client.end(lease_id, force=bool(args.get("force")))
        if name == "connection":
            client_key = str(args.get("client_key") or "")
            return await client.connection(lease_id, client_key, kernel_id)
        raise GPULeaseError("malformed", f"The bus knows no call {name!r}.")

    def _told(self, kernel_id: str, name: str, args: dict[str, Any]) -> None:
        if name == "environment":
            self._environments[kernel_id] = cast("Environment", args)
        else:
            self._cell(kernel_id, bool(args.get("busy")))

    def _cell(self, kernel_id: str, busy: bool) -> None:
        for lease_id in self.board.cell(kernel_id, busy, datetime.now(UTC)):
            self._tell_kernels({"event": "lease", "lease": self.board.shown(lease_id)})
        self.kernels_changed()

    def _greeting(self) -> list[dict[str, Any]]:
        self.kernels_changed()  # whoever connects may be one that the server did not start
        return [self._snapshot(), {"event": "link", "up": self.board.up}]

    def _snapshot(self) -> dict[str, Any]:
        return {
            "event": "snapshot",
            "leases": self.board.all_shown(),
            "classes": self.board.classes,
            "sticky": sorted(self.board.sticky),
        }

    def _take_messages(self, messages: list[MessageView]) -> None:
        self.messages = messages
        self._on_change({"event": "messages", "messages": messages})

    def _tell_kernels(self, event: dict[str, Any]) -> None:
        self.bus.push(event)
        self._on_change(event)

    def _tell_service(self, message: Mapping[str, Any]) -> None:
        if self.upstream is not None:
            self.upstream.push(message)

    def _report_kernels(self) -> None:
        if self._report_due is not None:
            self._report_due.cancel()
            self._report_due = None
        self._beside.keep(self._report())

    def _look_whose(self) -> None:
        """Report which lease is for which kernel, where that changed."""
        whose = {lease["id"]: lease["kernel_id"] for lease in self.board.all_shown()}
        if whose != self._whose:
            self._whose = whose
            self.kernels_changed()

    async def _report(self) -> None:
        names = await self._notebooks() if self._notebooks is not None else {}
        kernels = self.board.kernels({*self._alive(), *self.bus.living}, names)
        self._tell_service({"type": "kernels", "kernels": kernels})

    def _granted(self, lease_id: str) -> None:
        assert self.supervisors is not None
        grant = self.board.grants[lease_id]
        lease = self.board.leases[lease_id]
        if grant["park_dir"]:
            self._parkings.add(Parking(grant["park_dir"], lease["user"], lease["server"]))
        self._beside.keep(self.supervisors.granted(lease, grant))

    def _ended(self, lease_id: str) -> None:
        if self.supervisors is not None:
            self.supervisors.ended(lease_id)


def _lease_id(args: Mapping[str, Any]) -> str:
    """Return the lease a call is about; it becomes part of a path, so it is checked."""
    lease_id = args.get("lease_id")
    if not isinstance(lease_id, str) or not lease_id.replace("-", "").replace("_", "").isalnum():
        raise GPULeaseError("malformed", "The call does not name a lease.")
    return lease_id
