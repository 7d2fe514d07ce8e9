"""The supervisor of a further node of a lease: it runs what the first node launches.

It has no companion and no notebook: ``gpulease launch``, in a companion of the first node, calls it
directly.  The service introduces the two and proves which pod this is; it ends with its pod.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpulease.channel.conversation import Message
from gpulease.channel.curve import Client, CurveServer
from gpulease.channel.timing import LOST_AFTER, Heartbeat
from gpulease.channel.websocket import WebsocketClient
from gpulease.companion import tree
from gpulease.companion.activity import ActivitySampler, Batches
from gpulease.companion.config import SupervisorConfig
from gpulease.companion.jobs import LOOKS_EVERY, Jobs
from gpulease.companion.mirrors import Mirrors
from gpulease.companion.ports import Ports
from gpulease.errors import GPULeaseError
from gpulease.protocol.control import MirrorView
from gpulease.protocol.names import ENV_LEASE, PROTOCOL_VERSION
from gpulease.protocol.reports import FromSupervisor
from gpulease.protocol.service_tls import trusted
from gpulease.sides.environment import launched_environment
from gpulease.system.background import BackgroundTasks

if TYPE_CHECKING:
    from gpulease.channel.curve import Client


log = logging.getLogger("gpulease.companion")

_PING_SECONDS = 15.0
_LOOK_SECONDS = 1.0
_BATCH_SECONDS = 5.0


class Member:
    """Runs one further node of a lease.

    Args:
        config: the lease, with the node's rank.
    """

    def __init__(self, config: SupervisorConfig) -> None:
        self.config = config
        self._jobs = Jobs()
        self._sampler = ActivitySampler(lambda: ())
        self._batches = Batches(_BATCH_SECONDS)
        self._mark = f"{config.lease_id}/{config.rank}"
        self._ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._beside = BackgroundTasks(log, "the node's work failed")
        ports = Ports(config.ports)
        self._guests = Guests(Mirrors(config.mirror, config.mirror_limit, config.ip, ports))
        port = ports.take(1, config.ip)[0]
        failed = f"Node {config.rank} of the lease failed"
        self._control = CurveServer(config.ip, self._called, port, failed)
        self._channel = WebsocketClient(
            config.channel_url,
            headers=lambda: {"Authorization": f"Bearer {config.credential()}"},
            pushed=self._hear,
            greeting=self._hello,
            tls=trusted(config.channel_url, os.environ),
            ping=_PING_SECONDS,
        )

    async def run(self) -> str:
        """Serve until the end; return its reason."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, "stopped")
        self._beside.keep(self._channel.run())
        self._beside.keep(self._watch())
        reason = await asyncio.shield(self._ending)
        await self._jobs.end_all()
        await self._guests.end_all()
        await tree.end_tree({self._mark}, os.getpid(), grace=0.5)
        self._channel.close(dict(FromSupervisor(type="bye", reason="ended")))
        self._beside.cancel()
        await self._control.stop()
        return reason

    def _end(self, reason: str) -> None:
        if not self._ending.done():
            self._ending.set_result(reason)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self._jobs.end_silent()
            await self._guests.end_silent()
            waited_for = self._jobs.pids
            if waited_for is not None:  # whoever takes a status first is the only one who has it
                tree.reap_orphans(spare_children=waited_for)
            try:
                self._tell_activity()
            except Exception:  # without a sample the first node's word counts alone
                log.exception("a sample could not be taken")

    def _tell_activity(self) -> None:
        """Tell what lives here; of nothing the first node tells: its silence is none of ours."""
        batch = self._batches.add(self._sampler.sample(()))
        alive = [sample for sample in batch if sample["processes"]]
        if alive:
            self._channel.push(dict(FromSupervisor(type="activity", samples=alive)))

    def _hear(self, message: Message) -> None:
        """Do what the service says; the rest of what it tells is for the first node."""
        if message.get("type") == "admit":
            self._control.admit(message["client_key"], "")
            said = FromSupervisor(type="admitted", client_key=message["client_key"])
            self._channel.push(dict(said))
        elif message.get("type") == "end":
            self._end(message.get("reason", "ended"))

    def _hello(self) -> Message:
        endpoint = self._control.endpoint
        return dict(
            FromSupervisor(
                type="hello",
                address=endpoint.address,
                public_key=endpoint.server_key,
                protocol=PROTOCOL_VERSION,
                pid=os.getpid(),
                attempt=self.config.attempt,
            )
        )

    async def _called(self, client: Client, name: str, args: Message) -> Any:
        self._jobs.heard(client)
        self._guests.heard(client)
        if name == "ping":
            return True
        if name in ("mirror", "unmirror"):
            return await self._guests.called(client, name, args)
        if name == "run":
            environment = launched_environment(os.environ, args["environment"]) | args["place"]
            environment[ENV_LEASE] = self._mark
            umask = int(args.get("umask", -1))
            return await self._jobs.run(client, args["words"], environment, args["cwd"], umask)
        if name == "read":
            return await self._jobs.read(args["job"], args["stream"])
        if name == "wait":
            return await self._jobs.wait(args["job"])
        if name == "end":
            return await self._jobs.end(args["job"])
        raise GPULeaseError("malformed", f"A node knows no call {name!r}.")


@dataclass
class _Guest:
    client: Client
    heart: Heartbeat


class Guests:
    """Mirrors that launches of another node have open here; a silent launcher's are closed.

    Args:
        mirrors: of this node.
    """

    def __init__(self, mirrors: Mirrors) -> None:
        self._mirrors = mirrors
        self._guests: dict[str, _Guest] = {}

    async def called(self, client: Client, name: str, args: Message) -> MirrorView | None:
        """Answer ``mirror`` (launch, root, wire_key) and ``unmirror`` (launch).

        Listen for the files of one launch (None where it needs none to be sent), or no more.

        Raises:
            GPULeaseError: ``no_ports``.
        """
        launch = str(args["launch"])
        if name == "unmirror":
            await self._close(launch)
            return None
        root = str(args["root"])
        if not self._mirrors.has(root):
            return None
        heart = Heartbeat(time.monotonic(), LOST_AFTER, LOST_AFTER, LOOKS_EVERY)
        self._guests[launch] = _Guest(client, heart)
        return await asyncio.to_thread(self._mirrors.open, launch, root, args["wire_key"])

    def heard(self, client: Client) -> None:
        """Note that the launching node is there."""
        for guest in self._guests.values():
            if guest.client is client:
                guest.heart.heard(time.monotonic())

    async def end_silent(self) -> None:
        """Let go of launches that have not been heard of while this was looked at."""
        now = time.monotonic()
        for launch in [name for name, each in self._guests.items() if each.heart.just_lost(now)]:
            await self._close(launch)

    async def end_all(self) -> None:
        """Let go of all."""
        for launch in list(self._guests):
            await self._close(launch)

    async def _close(self, launch: str) -> None:
        """Listen no more for one launch; its files stay."""
        if self._guests.pop(launch, None) is not None:
            await asyncio.to_thread(self._mirrors.close, launch)
