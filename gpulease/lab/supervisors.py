"""The supervisors of this server's leases: its children, started, bound and ended here.

Each granted lease has one process; another one is started ahead where that is wanted.  What a lease
needs is in its grant, written to stdin and nowhere else.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gpulease.companion.config import PARK_EXPIRY, PARK_LIMIT
from gpulease.companion.tree import end_tree
from gpulease.protocol.service import GrantView, LeaseView
from gpulease.sides.environment import marked_environment
from gpulease.system.background import BackgroundTasks

log = logging.getLogger("gpulease.lab")

Report = Callable[[dict[str, Any]], None]
#: A supervisor that was told to end has this long (seconds) before its processes are ended.
_END_SECONDS = 5.0
#: The next supervisor is started ahead once the lease that took the last one has its companion,
#: or after this long (seconds): somebody may ask for a GPU and run nothing yet.
_REPLACE_SECONDS = 3.0


class Supervised:
    """One supervisor process, for a lease or started ahead."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self.process = process
        self.marks = {mark}
        self.lease_id = ""
        self.attempt = 0
        self.state = "standby"
        self.detail = ""
        self.settled = asyncio.Event()  # a home kernel has its companion, or nobody ever will

    @classmethod
    async def start(cls, mark: str, *, standby: bool) -> Supervised:
        """Start the process with the server's interpreter and an allow-listed environment."""
        arguments = ["--standby"] if standby else []
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # a file of the student's must not pass for a module of ours
            "-m",
            "gpulease.companion",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=marked_environment(os.environ, mark),
            start_new_session=True,
        )
        return cls(process, mark)

    def tell(self, order: Mapping[str, Any]) -> None:
        """Write one order to its stdin; it may be gone."""
        stdin = self.process.stdin
        assert stdin is not None
        if self.process.returncode is None and not stdin.is_closing():
            with suppress(ConnectionError):
                stdin.write(json.dumps(order).encode() + b"\n")

    def bind(self, lease: LeaseView, grant: GrantView, service_url: str) -> None:
        """Tell it for which lease it is."""
        self.lease_id, self.attempt = lease["id"], grant["attempt"]
        self.state = "starting"
        self.marks.add(lease["id"])
        self.tell(
            {
                "lease_id": lease["id"],
                "attempt": grant["attempt"],
                "token": grant["token"],
                "service_url": service_url,
                "devices": grant["visible_devices"],
                "count": lease["count"],
                "nodes": lease.get("nodes", 1),
                "user": lease["user"],
                "server": lease["server"],
                "park_dir": grant["park_dir"],
                "park_limit": grant.get("park_limit", PARK_LIMIT),
                "park_expiry": grant.get("park_expiry", PARK_EXPIRY),
                "drain_max": grant["drain_max"],
                "hard_end": lease["hard_end"] or "",
            }
        )

    def report(self) -> dict[str, Any]:
        """What the service is told of it."""
        return {
            "type": "supervisor",
            "lease_id": self.lease_id,
            "attempt": self.attempt,
            "state": self.state,
            "detail": self.detail,
            "pids": [self.process.pid] if self.process.returncode is None else [],
        }


class Supervisors:
    """All supervisors of this server.

    Args:
        service_url: the lease service's public prefix.
        report: called with each change, as the service is told it.
        standby: whether one is started ahead.
    """

    def __init__(self, service_url: str, report: Report, *, standby: bool) -> None:
        self._service_url = service_url
        self._report = report
        self._standby = standby
        self._waiting: Supervised | None = None
        self._known: dict[tuple[str, int], Supervised] = {}
        self._over: set[str] = set()  # a lease may end while its supervisor is being started
        self._lock = asyncio.Lock()
        self._beside = BackgroundTasks(log, "watching a supervisor failed")
        self._closed = False

    async def open(self) -> None:
        """Start one ahead, where wanted."""
        async with self._lock:
            if self._standby and self._waiting is None and not self._closed:
                mark = f"standby-{secrets.token_hex(8)}"
                self._waiting = await Supervised.start(mark, standby=True)
                self._beside.keep(self._follow(self._waiting))

    @property
    def ready_ahead(self) -> int | None:
        """Pid of the supervisor that waits for a lease."""
        return self._waiting.process.pid if self._waiting is not None else None

    def reports(self) -> list[dict[str, Any]]:
        """What a service that was away must be told."""
        return [known.report() for known in self._known.values() if known.state != "starting"]

    def running(self, lease_id: str) -> Supervised | None:
        """Return the supervisor of a lease that lives."""
        for (known_id, _), known in self._known.items():
            if known_id == lease_id and known.process.returncode is None:
                return known
        return None

    async def granted(self, lease: LeaseView, grant: GrantView) -> None:
        """See to it that this attempt of a lease has had its supervisor."""
        key = (lease["id"], grant["attempt"])
        async with self._lock:
            known = self._known.get(key)
            if known is not None:
                known.tell({"type": "lease", "hard_end": lease["hard_end"] or ""})
                return
            if self._closed or lease["id"] in self._over:
                return
            supervised = await self._take(lease["id"])
            supervised.bind(lease, grant, self._service_url)
            self._known[key] = supervised
            if lease["id"] in self._over:
                self.ended(lease["id"])
        log.info("lease %s: supervisor %d", lease["id"], supervised.process.pid)
        if self._standby:
            self._beside.keep(self._replace(supervised))

    async def _replace(self, taken: Supervised) -> None:
        """Start another ahead, but not while the lease that took the last one needs the cores.

        Not later either: a second request soon after the first one finds it ready.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_REPLACE_SECONDS):
                await taken.settled.wait()
        await self.open()

    def ended(self, lease_id: str) -> None:
        """The lease is over: end what runs of it, and forget it."""
        self._over.add(lease_id)
        for key, known in list(self._known.items()):
            if key[0] != lease_id:
                continue
            if known.process.returncode is None and known.state != "ending":
                known.state = "ending"
                known.tell({"type": "end", "reason": "ended"})
                self._beside.keep(self._insist(known))
            elif known.process.returncode is not None:
                del self._known[key]

    def close_kernel(self, kernel_id: str) -> None:
        """A home kernel restarted or ended: its companions end with it."""
        for known in self._known.values():
            known.tell({"type": "close", "kernel_id": kernel_id})

    async def close(self, seconds: float) -> None:
        """The server stops: park, end; what needs longer than ``seconds`` finishes by itself.

        A supervisor lives in a session of its own and ends with or without this server.
        """
        self._closed = True
        async with self._lock:  # what is being started is known afterwards
            everyone = [k for k in self._known.values() if k.process.returncode is None]
        for known in everyone:
            known.tell({"type": "end", "reason": "parent_gone", "park": True})
        if self._waiting is not None:
            everyone.append(self._waiting)
            assert self._waiting.process.stdin is not None
            self._waiting.process.stdin.close()
        if everyone:
            waits = [asyncio.ensure_future(k.process.wait()) for k in everyone]
            _, late = await asyncio.wait(waits, timeout=seconds)
            for wait in late:
                wait.cancel()
        await self._beside.end()

    async def _take(self, lease_id: str) -> Supervised:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting.process.returncode is None:
            return waiting
        supervised = await Supervised.start(lease_id, standby=False)
        self._beside.keep(self._follow(supervised))
        return supervised

    async def _follow(self, supervised: Supervised) -> None:
        """Read what a supervisor says, until it has ended and nothing of it is left."""
        process = supervised.process
        assert process.stdout is not None
        errors = self._beside.keep(_pass_on(process))
        while line := await process.stdout.readline():
            said = json.loads(line).get("type")
            if said == "ready" and supervised.state == "starting":
                supervised.state = "started"
                self._report(supervised.report())
            elif said == "opened":
                supervised.settled.set()
        supervised.settled.set()
        status = await process.wait()
        last = await errors
        if supervised is self._waiting:
            self._waiting = None
            if not self._closed:
                log.warning("the supervisor started ahead ended with status %d: %s", status, last)
        left = await end_tree(supervised.marks, reap=False)
        if not supervised.lease_id:
            return
        supervised.detail = "" if status == 0 else f"status {status}: {last}".strip(": ")
        if left:
            supervised.detail += f" {len(left)} processes could not be ended"
        never = supervised.state == "starting"
        over = supervised.state == "ending"
        supervised.state = "failed" if never else "exited"
        self._report(supervised.report())
        if over:
            self._known.pop((supervised.lease_id, supervised.attempt), None)

    async def _insist(self, supervised: Supervised) -> None:
        try:
            async with asyncio.timeout(_END_SECONDS):
                await supervised.process.wait()
        except TimeoutError:
            await end_tree(supervised.marks, reap=False)


async def _pass_on(process: asyncio.subprocess.Process) -> str:
    """Log what a supervisor writes to stderr; return its last line."""
    assert process.stderr is not None
    last = ""
    while line := await _line(process.stderr):
        last = line.decode(errors="replace").rstrip()
        log.info("supervisor %d: %s", process.pid, last)
    return last


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:  # a line beyond the limit; its rest follows
        return b"(a very long line)\n"
