"""Mirrors that launches of another node have open here; a silent launcher's are closed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulease.channel.conversation import Message
from gpulease.channel.timing import LOST_AFTER, Heartbeat
from gpulease.companion.jobs import LOOKS_EVERY
from gpulease.companion.mirrors import Mirrors
from gpulease.protocol.control import MirrorView

if TYPE_CHECKING:  # `gpulease --help` loads no zmq
    from gpulease.channel.curve import Client


@dataclass
class _Guest:
    client: Client
    heart: Heartbeat


class Guests:
    """The mirrors of launches.

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
