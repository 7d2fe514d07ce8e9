"""What instructors and admins tell the members of a group, until it expires.

The messages that are shown are stored as one text: they are few, and a restarted service shows them
again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpulease.errors import GPULeaseError
from gpulease.protocol import MessageView
from gpulease.service.hubs.auth import Asker

#: So many of one person are shown at a time; their own oldest goes.
MOST = 5


@dataclass(frozen=True)
class Message:
    """One message; ``group`` is "" for everybody."""

    id: str
    at: datetime
    until: datetime
    by: str
    group: str
    text: str

    def view(self) -> MessageView:
        """Return it as it is told."""
        return {
            "id": self.id,
            "at": self.at.isoformat(timespec="seconds"),
            "until": self.until.isoformat(timespec="seconds"),
            "by": self.by,
            "group": self.group,
            "text": self.text,
        }

    def is_for(self, asker: Asker) -> bool:
        """Whether somebody is shown it: the members, and those who may tell them."""
        return not self.group or self.group in asker.groups or may_tell(asker, self.group)


def may_tell(asker: Asker, group: str) -> bool:
    """Tell whether somebody may write to a group's members; to everybody, admins may."""
    if not group:
        return asker.admin
    return asker.admin or asker.teaches(group)


class Messages:
    """The messages that are shown now.

    Args:
        clock: the time, UTC.
        keep: stores the text that ``load`` is given after a restart.
        changed: called when another set of them is shown.
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        keep: Callable[[str], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._keep = keep
        self._changed = changed
        self._shown: list[Message] = []
        self._lock = asyncio.Lock()

    def load(self, kept: str) -> None:
        """Show what was shown before; "" is nothing."""
        self._shown = [_read(each) for each in json.loads(kept or "[]")]

    def shown_to(self, asker: Asker) -> list[MessageView]:
        """Return what somebody is shown now, the newest last."""
        now = self._clock()
        return [each.view() for each in self._shown if each.until > now and each.is_for(asker)]

    async def tell(self, asker: Asker, group: str, text: str, seconds: float) -> Message:
        """Show a text to the members of a group for so long.

        Raises:
            GPULeaseError: ``may_not_tell`` (403), and those of the store.
        """
        self._allow(asker, group)
        now = self._clock()
        until = now + timedelta(seconds=seconds)
        told = Message(secrets.token_hex(8), now, until, asker.name, group, text.strip())
        async with self._lock:
            kept = [each for each in self._shown if each.until > now]
            gone = [each for each in kept if each.by == told.by][: 1 - MOST]
            await self._show([*(each for each in kept if each not in gone), told])
        return told

    async def withdraw(self, asker: Asker, message_id: str) -> None:
        """Show a message no more; a repeat changes nothing.

        Raises:
            GPULeaseError: ``may_not_tell`` (403), and those of the store.
        """
        async with self._lock:
            found = next((each for each in self._shown if each.id == message_id), None)
            if found is None:
                return
            self._allow(asker, found.group)
            await self._show([each for each in self._shown if each is not found])

    async def _show(self, messages: list[Message]) -> None:
        await self._keep(json.dumps([each.view() for each in messages]))
        self._shown = messages
        self._changed()

    def _allow(self, asker: Asker, group: str) -> None:
        if not may_tell(asker, group):
            whom = f"the members of {group}" if group else "everybody"
            raise GPULeaseError(
                "may_not_tell",
                f"You may not write to {whom}.",
                next_step="Name a group that you teach, or ask an admin.",
                numbers={"group": group},
                status=403,
            )


def _read(view: MessageView) -> Message:
    at, until = (datetime.fromisoformat(view[name]) for name in ("at", "until"))
    return Message(view["id"], at, until, view["by"], view["group"], view["text"])
