"""One companion for each home kernel of a lease.

Companions are opened (with the handshake), interrupted, parked and closed here, and a death is
noticed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulease.channel.conversation import Message
from gpulease.companion import tree
from gpulease.companion.activity import WatchedCompanion
from gpulease.companion.config import Parking, SupervisorConfig
from gpulease.companion.handshake import (
    check_packages,
    check_protocol,
    check_python,
    check_version,
)
from gpulease.companion.nodes import LeaseNodes
from gpulease.companion.ports import Ports
from gpulease.companion.processes import CompanionProcess
from gpulease.errors import GPULeaseError
from gpulease.protocol.control import CompanionOpen, CompanionOpened
from gpulease.sides.environment import (
    ENV_COMPANION,
    companion_environment,
    companion_mark,
    marked_environment,
)
from gpulease.system.background import BackgroundTasks
from gpulease.system.process_table import descendants, process_table

if TYPE_CHECKING:
    from gpulease.companion.ahead import Spawned

log = logging.getLogger("gpulease.companion")

#: Called when a companion ended without being asked to: (kernel_id, detail).
Died = Callable[[str, str], Awaitable[None]]
_STOP_SECONDS = 1.0
#: Five Jupyter channels and the transfer's wire.
_PORTS_OF_A_KERNEL = 6


class Companion:
    """A running companion, and what its private line says."""

    def __init__(
        self,
        kernel_id: str,
        bound: CompanionProcess,
        ready: Mapping[str, Any],
        args: CompanionOpen,
    ) -> None:
        self.kernel_id = kernel_id
        self.wire_key = args["wire_key"]
        self.bound = bound
        self.ready = ready
        self.closing = False
        self.ports: list[int] = []
        self.watched = WatchedCompanion(bound.process.pid, frozenset(ready["infrastructure"]))
        self.gone = bound.link.gone
        self._parking = asyncio.Lock()
        bound.listen(self._said)

    def _said(self, message: Message) -> None:
        if message["type"] == "cells":
            self.watched.said_cells(message["cells"])
        elif message["type"] == "threads":
            self.watched.threads = message["threads"]
            self.watched.tasks = message["tasks"]
            self.watched.transfers = frozenset(message["transfers"])

    async def park(self, path: str, seconds: float, limit: int) -> dict[str, Any]:
        """Have it write what is not home to ``path``; ``done`` is False when time ran out."""
        order = {"path": path, "limit": limit}
        try:
            async with asyncio.timeout(seconds + 1.0), self._parking:
                parked: dict[str, Any] = await self.bound.link.call("park", order)
                return parked
        except TimeoutError:
            return not_parked(f"no answer in {seconds:g} s")
        except GPULeaseError as error:
            return not_parked("it died" if self.gone.is_set() else error.sentence)

    def interrupt(self) -> None:
        """Interrupt what runs on its main thread, and what that started in its group."""
        with suppress(ProcessLookupError):
            os.killpg(os.getpgid(self.bound.process.pid), signal.SIGINT)


class Companions:
    """All companions of one lease.

    Args:
        directory: private, for connection files.
        mark: the lease's mark, or that of a supervisor started ahead.
        ip: address of this machine that kernels and wires bind to.
        in_container: the machine is the lease's own.
    """

    def __init__(
        self,
        directory: Path,
        mark: str,
        *,
        ip: str = "127.0.0.1",
        in_container: bool = False,
    ) -> None:
        self._directory = directory
        self._ip = ip
        self._in_container = in_container
        self._ports = Ports()
        self._mark = mark
        self.nodes = LeaseNodes()
        self._parking = Parking()
        self._homes_interpreter = False
        self._died: Died
        self._prepared: CompanionProcess | None = None
        self._opening: set[int] = set()
        self._running: dict[str, Companion] = {}
        self._starting = 0
        self._locks: dict[str, asyncio.Lock] = {}
        self._beside = BackgroundTasks(log, "watching a companion failed")

    async def prepare(self, spawned: Spawned | None = None) -> None:
        """Start one process ahead, or take ``spawned``: ipykernel imported, no user code."""
        if spawned is not None:
            self._prepared = await CompanionProcess.over(spawned)
            return
        environ = marked_environment(os.environ, self._mark, in_container=self._in_container)
        self._prepared = await CompanionProcess.start(sys.executable, environ, self._directory)

    async def imported(self) -> None:
        """Wait until the process that was started ahead has imported all it needs.

        Raises:
            GPULeaseError: ``companion_failed``, ``gpulease_missing``.
        """
        if self._prepared is not None:
            await self._prepared.prepared()

    def bind(self, config: SupervisorConfig, ports: Ports, died: Died) -> None:
        """Learn what the lease is; the process started ahead takes its mark when it is used.

        With a hub, home kernels live on this machine or in a pod of the same image, and bring their
        own interpreter; without one they may live anywhere, and a path of theirs says nothing here.
        """
        self._ip, self._mark, self._ports = config.ip, config.lease_id, ports
        self._died = died
        self.nodes = LeaseNodes.of(config, self._directory)
        self._parking = config.parking
        self._homes_interpreter = bool(config.service_url)
        removed = self._parking.sweep()
        if removed:
            log.info("%d files of parked values were too old and are removed", removed)

    @property
    def running(self) -> list[Companion]:
        """The companions that live now."""
        return list(self._running.values())

    @property
    def watched(self) -> list[WatchedCompanion]:
        """Whose use counts: the companions', and a home kernel's that waits for its companion."""
        waiting = [WatchedCompanion(0, cells=1) for _ in range(self._starting)]
        return [companion.watched for companion in self.running] + waiting

    def infrastructure(self) -> list[int]:
        """Pids below the supervisor that are neither companions nor the user's."""
        return [*self._opening, *([self._prepared.process.pid] if self._prepared else [])]

    async def open(self, args: CompanionOpen) -> CompanionOpened:
        """Return this home kernel's companion, started when it does not run.

        Raises:
            GPULeaseError: ``protocol_mismatch``, ``version_mismatch``, ``python_mismatch``,
                ``gpulease_missing``, ``companion_failed``.
        """
        check_protocol(args["protocol"])
        check_version(args["version"])
        lock = self._locks.setdefault(args["kernel_id"], asyncio.Lock())
        async with lock:
            companion = self._running.get(args["kernel_id"])
            if companion is not None and companion.wire_key != args["wire_key"]:
                # Home began anew, so does its companion.
                await self._end(self._running.pop(args["kernel_id"]))
                companion = None
            fresh = companion is None
            if companion is None:
                self._starting += 1
                try:
                    companion = await self._start(args)
                finally:
                    self._starting -= 1
            return self._opened(companion, args, fresh)

    async def close(self, kernel_id: str, *, now: bool = False) -> None:
        """End a companion and everything it started; ``now``: without asking first."""
        companion = self._running.pop(kernel_id, None)
        if companion is not None:
            # The next companion of this kernel has the same mark, and must not end with this one.
            async with self._locks.setdefault(kernel_id, asyncio.Lock()):
                await self._end(companion, now=now)

    async def _end(self, companion: Companion, *, now: bool = False) -> None:
        companion.closing = True
        pid = companion.bound.process.pid
        below = descendants([pid], process_table())
        if not now:
            await self._stop([companion])
        tree.signal_all([pid], signal.SIGKILL)
        mark = companion_mark(self._mark, companion.kernel_id)
        below |= tree.marked([mark], ENV_COMPANION) - {os.getpid()}
        tree.signal_all(below - {pid}, signal.SIGKILL)
        await asyncio.get_running_loop().run_in_executor(None, companion.bound.process.wait)
        self._clean_up(companion)

    async def stop_all(self) -> None:
        """Ask every companion to end by itself; those that do not are ended with the tree."""
        for companion in self._running.values():
            companion.closing = True
        await self._stop(self.running)

    async def clean_up(self) -> None:
        """Collect the processes; call it when the tree has ended."""
        if self._prepared is not None:
            self._prepared.link.close()
            self._prepared.process.wait()
        for companion in self.running:
            companion.bound.process.wait()
            self._clean_up(companion)
        self._running.clear()
        self._beside.cancel()

    def children(self) -> set[int]:
        """Pids that a ``Popen`` of ours waits for."""
        found = {companion.bound.process.pid for companion in self.running}
        return found | set(self.infrastructure())

    def interrupt(self, kernel_id: str) -> bool:
        """Interrupt a companion's cell; False when it has no companion."""
        companion = self._running.get(kernel_id)
        if companion is not None:
            companion.interrupt()
        return companion is not None

    def cell_at_home(self, kernel_id: str, *, runs: bool) -> None:
        """A home kernel says whether a GPU cell of it is under way."""
        companion = self._running.get(kernel_id)
        if companion is not None:
            companion.watched.said_home(runs=runs)

    def interrupt_cells(self) -> None:
        """Interrupt every cell that runs now."""
        for companion in self.running:
            if companion.watched.cells:
                companion.interrupt()

    async def park(self, kernel_id: str, seconds: float) -> dict[str, Any]:
        """Park what one companion holds alone; return done, parked, blockers and detail."""
        companion = self._running.get(kernel_id)
        path = self._parking.file(kernel_id)
        if companion is None or path is None:
            return not_parked(
                "nowhere to park is configured" if companion else "it has no companion"
            )
        try:
            limit = self._parking.prepare(kernel_id)
        except OSError as error:
            return not_parked(str(error))
        return await companion.park(str(path), seconds, limit)

    async def _start(self, args: CompanionOpen) -> Companion:
        kernel_id = args["kernel_id"]
        environ = companion_environment(
            os.environ, args["environ"], self._mark, kernel_id, self.nodes.devices,
            in_container=self._in_container,
        )  # fmt: skip
        environ |= self.nodes.environment()
        if args["hash_seed"]:
            environ["PYTHONHASHSEED"] = args["hash_seed"]
        else:
            environ.pop("PYTHONHASHSEED", None)
        bound = await self._process(args, environ)
        self._opening.add(bound.process.pid)
        ports: list[int] = []
        try:
            check_python(home=args["python"], away=await bound.prepared())
            order: dict[str, Any] = {
                "cwd": args["cwd"],
                "path": args["path"],
                "environ": environ,
                "wire_key": args["wire_key"],
                "packages": list(args["packages"]),
                "ip": self._ip,
                "connection_file": str(self._connection_file(bound.process.pid)),
                "merge_path": self._in_container,
                "park_limit": self._parking.limit if self._parking.root else 0,
            }
            ports = self._ports.take(_PORTS_OF_A_KERNEL, self._ip)
            bulk = self._ports.spare(self._ip)
            ports += bulk
            *order["ports"], order["wire_port"] = ports[:_PORTS_OF_A_KERNEL]
            order["bulk_port"] = bulk[0] if bulk else None
            ready = await bound.begin(order)
        except BaseException:
            self._ports.give_back(ports)
            tree.signal_all([bound.process.pid], signal.SIGKILL)
            bound.link.close()
            bound.process.wait()
            raise
        finally:
            self._opening.discard(bound.process.pid)
        companion = Companion(kernel_id, bound, ready, args)
        companion.ports = ports
        self._running[kernel_id] = companion
        self._beside.keep(self._watch(companion))
        return companion

    async def _process(self, args: CompanionOpen, environ: Mapping[str, str]) -> CompanionProcess:
        executable = sys.executable
        wanted = args.get("executable") if self._homes_interpreter else ""
        # A pod may run another image, where this interpreter is the only one that is known.
        if wanted and (not self._in_container or os.access(wanted, os.X_OK)):
            executable = wanted
        prepared = self._prepared
        if prepared is not None and prepared.fits(executable, args["hash_seed"]):
            self._prepared = None
            return prepared
        return await CompanionProcess.start(executable, environ, self._directory)

    def _opened(self, companion: Companion, args: CompanionOpen, fresh: bool) -> CompanionOpened:
        path = self._parking.file(companion.kernel_id)
        return CompanionOpened(
            connection=companion.ready["connection"],
            wire_address=companion.ready["wire_address"],
            wire_key=companion.ready["wire_key"],
            pid=companion.bound.process.pid,
            fresh=fresh,
            warnings=[
                *companion.ready["notes"],
                *check_packages(home=args["packages"], away=companion.ready["packages"]),
            ],
            parked=str(path) if path is not None and path.exists() else "",
        )

    async def _watch(self, companion: Companion) -> None:
        await companion.gone.wait()
        loop = asyncio.get_running_loop()
        status = await loop.run_in_executor(None, companion.bound.process.wait)
        if companion.closing or self._running.get(companion.kernel_id) is not companion:
            return
        log.warning("companion of kernel %s ended by itself: %s", companion.kernel_id, status)
        # What it started is ended too: the next companion begins with nothing behind it.
        await self.close(companion.kernel_id, now=True)
        await self._died(companion.kernel_id, _how(status))

    async def _stop(self, companions: list[Companion]) -> None:
        if not companions:
            return
        for companion in companions:
            companion.bound.link.notify("stop", {})
        waits = [asyncio.ensure_future(companion.gone.wait()) for companion in companions]
        _, late = await asyncio.wait(waits, timeout=_STOP_SECONDS)
        for wait in late:
            wait.cancel()

    def _clean_up(self, companion: Companion) -> None:
        companion.bound.link.close()
        self._ports.give_back(companion.ports)
        self._connection_file(companion.bound.process.pid).unlink(missing_ok=True)

    def _connection_file(self, pid: int) -> Path:
        return self._directory / f"kernel-{pid}.json"


def not_parked(detail: str) -> dict[str, Any]:
    """Return the answer of a parking that came to nothing."""
    return {"done": False, "parked": 0, "blockers": [], "detail": detail}


def _how(status: int) -> str:
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
