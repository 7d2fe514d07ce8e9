"""The supervisor of one lease: what happens between its start and its end.

It puts companions, samples, drain and end in order; each is a module of its own.  The service
speaks over the channel, the notebook server over stdin, home kernels over the control channel.
When a lease is warned, drained or ended is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from gpulease.channel.websocket import WebsocketClient
from gpulease.companion import tree
from gpulease.companion.activity import ActivitySampler, Batches
from gpulease.companion.config import END_SECONDS, SupervisorConfig
from gpulease.companion.drain import Drain, Parked, next_step, park_all, seconds_until
from gpulease.companion.kernels import Companions
from gpulease.companion.mirrors import Mirrors
from gpulease.companion.ports import ControlServer, Ports
from gpulease.errors import GPULeaseError
from gpulease.protocol.control import CompanionOpen
from gpulease.protocol.names import PROTOCOL_VERSION
from gpulease.protocol.reports import FromSupervisor
from gpulease.protocol.service_tls import trusted
from gpulease.protocol.supervisor import ToSupervisor
from gpulease.sides.versions import environment
from gpulease.system.background import BackgroundTasks

log = logging.getLogger("gpulease.companion")

SAMPLE_SECONDS = 1.0
#: Well below the ten seconds after which no sample means no data.
BATCH_SECONDS = 5.0
#: What a lease whose server is gone may take to park.
PARENT_GONE_SECONDS = 10.0
#: How long a cell that was interrupted may run on, where the service does not say.
INTERRUPT_GRACE = 10.0
#: What parking the values of a cell that does not end may take of the drain's time.
_PARK_SECONDS = 10.0
_PING_SECONDS = 15.0
_UNSENT = 60  # messages that wait for the service; older activity says nothing any more
_OPEN_NEEDS = ("kernel_id", "protocol", "python", "packages", "cwd", "path", "environ", "wire_key")


class Supervisor:
    """Runs one lease.

    Args:
        config: the lease.
        companions: with a process started ahead, or without.
        marks: all marks that the lease's processes may carry.
        opened: called when a home kernel has got its companion.
    """

    def __init__(
        self,
        config: SupervisorConfig,
        companions: Companions,
        marks: set[str],
        opened: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self._opened = opened
        self._companions = companions
        self._marks = marks
        self._hard_end = config.hard_end
        self._drain: Drain | None = None
        self._beside = BackgroundTasks(log, "the supervisor's work failed")
        self._ending: asyncio.Future[tuple[str, bool]] = asyncio.get_running_loop().create_future()
        self._leaving = False
        self._drained: FromSupervisor | None = None  # what leaving by itself came to
        self._warned = False  # by this lease itself, as the service is silent
        self._ports = Ports(config.ports)
        self.control = ControlServer(config.ip, self._call, self._ports.take(1, config.ip)[0])
        self._mirrors = Mirrors(config.mirror, config.mirror_limit, config.ip, self._ports)
        companions.bind(config, self._ports, self.companion_died)
        self._channel: WebsocketClient | None = None
        if config.channel_url:
            self._channel = WebsocketClient(
                config.channel_url,
                headers=lambda: {"Authorization": f"Bearer {config.credential()}"},
                pushed=self._hear,
                greeting=self._hello,
                tls=trusted(config.channel_url, os.environ),
                ping=_PING_SECONDS,
                keep=_UNSENT,
            )
        self._sampler = ActivitySampler(companions.infrastructure)
        self._batches = Batches(BATCH_SECONDS)

    async def run(self) -> str:
        """Serve until the end; return its reason."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop)
        if self._channel is not None:
            self.spawn(self._channel.run())
        self.spawn(self._watch())
        reason, park = await asyncio.shield(self._ending)
        await self._shut_down(reason, park)
        return reason

    def end(self, reason: str, *, park: bool = False) -> None:
        """Begin the end; the first reason counts."""
        if not self._ending.done():
            self._ending.set_result((reason, park))

    def stop(self) -> None:
        """This machine wants the lease gone (SIGTERM): within the grace, everything goes home."""
        if self.config.grace > END_SECONDS:
            self.spawn(self._leave("stopped", self.config.grace - END_SECONDS, firmly=True))
        else:
            self.end("stopped")

    def parent_gone(self) -> None:
        """The notebook server or home kernel that started this lease is gone."""
        self.end("parent_gone", park=True)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run something beside; if it fails that is logged."""
        self._beside.keep(work)

    async def on_order(self, order: dict[str, Any]) -> None:
        """Do what the notebook server says on stdin."""
        kind = order.get("type")
        if kind == "lease":
            self._hard_end = str(order.get("hard_end") or "")
        elif kind == "close":
            await self._close(str(order["kernel_id"]))
        elif kind == "end":
            self.end(str(order.get("reason", "ended")), park=bool(order.get("park")))
        else:
            log.warning("the notebook server said something unknown: %r", kind)

    async def _hear(self, message: dict[str, Any]) -> None:
        try:
            await self.on_message(cast("ToSupervisor", message))
        except Exception:
            # A border: what one message asked for failed and is logged.  The channel is the only
            # way in which the lease can still be told to drain and to end, so it stays.
            log.exception("a message of the lease service could not be followed")

    async def on_message(self, message: ToSupervisor) -> None:
        """Do what the lease service says."""
        kind = str(message.get("type"))
        if kind == "lease":
            await self._end_is(message.get("hard_end", ""))
        elif kind == "admit":
            self.control.admit(message["client_key"], message.get("kernel_id", ""))
            self._tell(FromSupervisor(type="admitted", client_key=message["client_key"]))
        elif kind == "revoke":
            self.control.revoke(message["client_key"])
            if message.get("kernel_id"):
                await self._close(message["kernel_id"])
        elif kind in ("warn", "clear"):
            self._push(kind, _members(message))
        elif kind == "drain":
            await self._begin_drain(message)
        elif kind == "resume":
            self._drain = None
            self._push("resume", _members(message))
        elif kind == "nodes":
            self._companions.nodes.meet(message["nodes"])
        elif kind == "end":
            self.end(message.get("reason", "ended"))
        else:
            log.warning("the lease service said something unknown: %r", kind)

    async def companion_died(self, kernel_id: str, detail: str) -> None:
        """Tell home; a drain waits for this kernel no longer."""
        if self._drain is not None:
            self._drain.answers.forget(kernel_id)
        members = {"kernel_id": kernel_id, "detail": detail}
        self._push("companion_died", members, kernel_id)

    async def _call(self, name: str, args: dict[str, Any], kernel_id: str) -> Any:
        if name == "ping":
            self._companions.cell_at_home(kernel_id, runs=args.get("cell") is True)
            return {"lease_id": self.config.lease_id}
        if not kernel_id:
            raise GPULeaseError("malformed", "The call does not say for which kernel it is.")
        if name == "open":
            return await self._open(args, kernel_id)
        if name == "mirror":
            return await asyncio.to_thread(
                self._mirrors.open, kernel_id, str(args.get("root")), str(args.get("wire_key"))
            )
        if name == "interrupt":
            return self._companions.interrupt(kernel_id)
        if name in ("close", "abandon"):
            await self._close(kernel_id, now=name == "abandon")
            return True
        if name == "drained":
            if self._drain is not None:
                result = str(args.get("result"))
                self._drain.answers.take(kernel_id, result, args.get("blockers") or [])
            return self._drain is not None
        raise GPULeaseError("malformed", f"A supervisor knows no call {name!r}.")

    async def _open(self, args: dict[str, Any], kernel_id: str) -> Any:
        missing = [name for name in _OPEN_NEEDS if name not in args]
        if missing:
            raise GPULeaseError("malformed", f"open lacks {', '.join(missing)}.")
        running = {companion.kernel_id for companion in self._companions.running}
        if kernel_id not in running and (self._drain is not None or self._ending.done()):
            raise GPULeaseError(
                "draining",
                "This lease is leaving and takes no new notebook.",
                next_step="Run the cell again: it asks for a new lease.",
            )
        wanted = {"hash_seed": "", "version": "", **args, "kernel_id": kernel_id}
        self._mirrors.make_directory(str(args["cwd"]))
        opened = await self._companions.open(cast("CompanionOpen", wanted))
        self._opened()
        return {**opened, "mirror": self._mirrors.place}

    async def _close(self, kernel_id: str, *, now: bool = False) -> None:
        # Meanwhile, not afterwards: a notebook that comes back at once opens a mirror of its own.
        mirror = asyncio.ensure_future(asyncio.to_thread(self._mirrors.close, kernel_id))
        await self._companions.close(kernel_id, now=now)
        await mirror
        if self._drain is not None:
            self._drain.answers.forget(kernel_id)

    async def _begin_drain(self, message: ToSupervisor) -> None:
        seconds = seconds_until(message.get("until", ""), self.config.drain_max)
        kernels = [companion.kernel_id for companion in self._companions.running]
        drain = Drain(kernels, seconds, message.get("park", False), self._companions.park)
        await self._start_drain(drain, message)
        self.spawn(self._finish_drain(drain))

    async def _start_drain(self, drain: Drain, message: ToSupervisor) -> None:
        self._drain = drain
        self._push("drain", _members(message))
        # Values come home between cells, so a cell that runs must end first.
        self._companions.interrupt_cells()
        self.spawn(self._insist(drain, message.get("interrupt_grace", INTERRUPT_GRACE)))

    async def _finish_drain(self, drain: Drain) -> None:
        result = await drain.run()
        for kernel_id, parked in drain.parked.items():
            self._push("parked", parked, kernel_id)
        if drain is self._drain:  # neither called off nor begun anew meanwhile
            self._tell(result)

    async def _leave(self, reason: str, seconds: float, *, firmly: bool) -> None:
        """Bring everything home and end, without the service.

        ``firmly``: whatever the service says meanwhile.
        """
        if self._leaving:
            return
        self._leaving = True
        log.info("the lease leaves by itself: %s", reason)
        until = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
        message = ToSupervisor(
            type="drain", until=until, reason=reason, park=True,
            interrupt_grace=min(INTERRUPT_GRACE, seconds / 4),
        )  # fmt: skip
        kernels = [companion.kernel_id for companion in self._companions.running]
        drain = Drain(kernels, seconds, park=True, parker=self._companions.park)
        await self._start_drain(drain, message)
        result = await drain.run()
        self._leaving = False
        if firmly or drain is self._drain:
            self._drained = result
            self.end(reason)

    async def _end_is(self, hard_end: str) -> None:
        """The service says when the lease ends; one that was leaving by itself may stay."""
        later = self._hard_end and hard_end > self._hard_end
        self._hard_end = hard_end
        if self._warned:
            self._warned = False
            self._push("clear", {})
        if later and self._leaving and not self._ending.done():
            self._drain = None
            self._push("resume", {})

    async def _insist(self, drain: Drain, grace: float) -> None:
        """End the companions whose cell still runs ``grace`` seconds after its interrupt.

        What they assigned so far is parked first: no value can be copied back while a cell runs.
        """
        if await drain.ends_within(grace) or drain is not self._drain:
            return
        stuck = [each.kernel_id for each in self._companions.running if each.watched.cells]
        await asyncio.gather(*(self._kill(drain, kernel_id, grace) for kernel_id in stuck))

    async def _kill(self, drain: Drain, kernel_id: str, grace: float) -> None:
        log.warning("the cell of kernel %s did not end in %g s: it is killed", kernel_id, grace)
        parked = await park_all([kernel_id], _PARK_SECONDS, self._companions.park)
        if drain.over or drain is not self._drain:
            return
        await self._companions.close(kernel_id, now=True)
        drain.killed(kernel_id, parked)
        detail = f"its cell did not end within {grace:g} s after the interrupt. {_became(parked)}"
        await self.companion_died(kernel_id, detail)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            # Each on its own, whatever happens: no sample is no data, which is not idleness, and
            # the hard end holds although nothing is seen.  The next second tries again.
            try:
                self._look()
            except Exception:
                log.exception("a sample could not be taken")
            try:
                await self._look_at_the_clock()
            except Exception:
                log.exception("the lease's end could not be looked at")

    def _look(self) -> None:
        tree.reap_orphans(spare_children=self._companions.children())
        batch = self._batches.add(self._sampler.sample(self._companions.watched))
        if batch:
            self._tell(FromSupervisor(type="activity", samples=batch))

    async def _look_at_the_clock(self) -> None:
        silent = self._channel is None or not self._channel.connected
        step = next_step(self._hard_end, datetime.now(UTC), silent=silent, warned=self._warned)
        if step in ("warn", "clear"):
            self._warned = step == "warn"
            until = {"until": self._hard_end, "reason": "hard_end"}
            self._push(step, until if self._warned else {})
        elif step == "leave" and not self._leaving:
            self.spawn(self._leave("expired", self.config.drain_max, firmly=False))

    async def _shut_down(self, reason: str, park: bool) -> None:
        if park:
            kernels = [companion.kernel_id for companion in self._companions.running]
            parked = await park_all(kernels, PARENT_GONE_SECONDS - 1.0, self._companions.park)
            for blocker in parked.lost:
                log.warning("lost with the lease: %s %s", blocker["name"], blocker["sentence"])
        else:
            parked = None
        with suppress(OSError):
            self._push("end", {"reason": reason})
        await asyncio.to_thread(self._mirrors.close_all)
        await self._companions.stop_all()
        left = await tree.end_tree(self._marks, os.getpid(), grace=0.5)
        await self._companions.clean_up()
        detail = f"processes that could not be ended: {len(left)}" if left else ""
        self._say_bye(reason, detail, parked)
        await asyncio.sleep(0)
        self._beside.cancel()
        await self.control.stop()

    def _say_bye(self, reason: str, detail: str, parked: Parked | None) -> None:
        if self._channel is None:
            return
        said = reason if reason in ("parent_gone", "expired", "stopped") else "ended"
        bye = FromSupervisor(type="bye", reason=said, detail=detail)
        if parked is not None:
            bye["parked"], bye["blockers"] = parked.number, parked.lost
        elif self._drained is not None:
            bye["parked"] = self._drained.get("parked", 0)
            bye["blockers"] = self._drained.get("blockers", [])
        self._channel.close(dict(bye))

    def _push(self, name: str, members: Mapping[str, Any], kernel_id: str = "") -> None:
        self.control.push({**members, "push": name}, kernel_id)

    def _hello(self) -> dict[str, Any]:
        hello = FromSupervisor(
            type="hello",
            address=self.control.endpoint.address,
            public_key=self.control.endpoint.server_key,
            protocol=PROTOCOL_VERSION,
            pid=os.getpid(),
            attempt=self.config.attempt,
            keys=self.control.admitted,
        )
        return {**hello, **self._companions.nodes.hello, **environment()}

    def _tell(self, message: FromSupervisor) -> None:
        if self._channel is not None:
            self._channel.push(message)


def _became(parked: Parked) -> str:
    if not parked.number:
        return "Nothing of it could be parked"
    return f"What it had assigned is parked ({parked.number} values); the next companion has it"


def _members(message: ToSupervisor) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "type"}
