"""Messages to people: mail and webhooks, and messages to the members of a group.

A notice that cannot be sent is tried again, and is not lost without a word.  What is worth a notice
is decided elsewhere.  Messages of instructors and admins are shown until they expire; they are few
and stored as one text, so a restarted service shows them again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
import smtplib
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid, parseaddr
from typing import Final, Protocol
from urllib.parse import urlsplit

from pydantic import TypeAdapter
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from gpulease.channel.timing import BackOff
from gpulease.errors import GPULeaseError
from gpulease.protocol.service import MessageView
from gpulease.service.hubs.auth import Asker
from gpulease.system.background import BackgroundTasks

log = logging.getLogger(__name__)

#: Seconds between two tries, and how many there are.
RETRY, TRIES = 60.0, 10
_TIMEOUT = 20.0
#: What a mail is about, by the kind of its notice: what its reader sees of it in a list.
SUBJECTS = {
    "short": "{name} of {group}: fewer GPUs than reserved, or than people",
    "cancelled": "{name} of {group} is cancelled",
    "changed": "{name} of {group} has changed",
    "budget": "{group} has spent most of its GPU-hours",
}
#: Why somebody who has never been at the hub gets it, and who can end that.
_WHY = {"budget": "You stand in `contact` of this budget; an admin of the hub can change that."}
_WHY_LAB = "You stand in `contact` of this reservation; its instructor can change that."
_PORTS = {"smtp": 25, "smtps": 465}


@dataclass(frozen=True)
class Notice:
    """A message to somebody.

    ``kind`` is one of ``SUBJECTS``; ``to`` are e-mail addresses.
    """

    kind: str
    group: str
    name: str
    sentence: str
    next_step: str = ""
    to: tuple[str, ...] = ()


#: What could not be sent: the way, and the letter.
_LEFT: Final = TypeAdapter(list[tuple[str, Notice]])


class Channel(Protocol):
    """A way to tell people; ``Notifier`` calls it for each notice, and again when it raises."""

    def letters(self, notice: Notice) -> Sequence[Notice]:
        """Return what is sent by itself: what becomes of one changes nothing for the others."""

    async def send(self, notice: Notice) -> None:
        """Send a notice, or raise ``OSError``."""


class Mail:
    """Sends each address its own e-mail through a relay; who has no address is not told.

    With a login everything is encrypted: by ``smtps``, or by STARTTLS before the login is sent.

    Args:
        url: ``smtp://host:port`` or ``smtps://host:port``.
        sender: the address that it comes from.
        login: name and password at the relay, ``None`` where it asks for none.
        context: whom to trust; the system's authorities by default.
        page: where its reader finds more, "" where that is not known.
    """

    def __init__(
        self,
        url: str,
        sender: str,
        login: tuple[str, str] | None = None,
        context: ssl.SSLContext | None = None,
        page: str = "",
    ) -> None:
        parts = checked(url, "notify_smtp", ("smtp", "smtps"))
        self._host, self._port = parts
        self._tls = url.startswith("smtps:")
        self._sender = sender
        self._login = login
        self._context = context or ssl.create_default_context()
        self._page = page

    def letters(self, notice: Notice) -> Sequence[Notice]:
        """Return one for each address."""
        return [replace(notice, to=(each,)) for each in dict.fromkeys(notice.to)]

    async def send(self, notice: Notice) -> None:
        """Send it to everybody who must be notified."""
        if notice.to:
            await asyncio.to_thread(self._deliver, notice)

    def _deliver(self, notice: Notice) -> None:
        with self._relay() as relay:
            if self._login is not None:
                if not self._tls:
                    relay.starttls(context=self._context)
                relay.login(*self._login)
            # The envelope has the addresses as they are: a header may read them otherwise.
            sender = parseaddr(self._sender)[1]
            relay.send_message(self._message(notice), sender, list(notice.to))

    def _message(self, notice: Notice) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self._sender, ", ".join(notice.to)
        about = SUBJECTS.get(notice.kind, "{name} of {group}")
        subject = f"[gpulease] {about.format(name=notice.name, group=notice.group)}"
        # Names may hold line ends of some alphabet, and a header none of them.
        message["Subject"] = " ".join(subject.split())
        message["Date"] = format_datetime(datetime.now(UTC))
        domain = parseaddr(self._sender)[1].rpartition("@")[2]
        message["Message-ID"] = make_msgid(domain=domain or "localhost")
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(self._text(notice))
        return message

    def _text(self, notice: Notice) -> str:
        said = [notice.sentence, notice.next_step]
        beside = [self._page, _WHY.get(notice.kind, _WHY_LAB)]
        return "\n".join([*filter(None, said), "", *filter(None, beside)])

    def _relay(self) -> smtplib.SMTP:
        if self._tls:
            return smtplib.SMTP_SSL(self._host, self._port, timeout=_TIMEOUT, context=self._context)
        return smtplib.SMTP(self._host, self._port, timeout=_TIMEOUT)


class Webhook:
    """Posts each notice as JSON; what is no success is tried again."""

    def __init__(self, url: str) -> None:
        checked(url, "notify_webhook", ("http", "https"))
        self._url = url

    def letters(self, notice: Notice) -> Sequence[Notice]:
        """Return the notice: one address is posted to."""
        return [notice]

    async def send(self, notice: Notice) -> None:
        """Post it."""
        try:
            await AsyncHTTPClient().fetch(
                self._url,
                method="POST",
                body=json.dumps(asdict(notice)),
                headers={"Content-Type": "application/json"},
                request_timeout=_TIMEOUT,
                follow_redirects=False,
            )
        except HTTPClientError as error:
            raise OSError(f"HTTP {error.code}") from None


class Notifier:
    """Sends notices over every channel in the background."""

    def __init__(self, channels: Sequence[Channel], *, retry: float = RETRY) -> None:
        self._channels = channels
        self._retry = retry
        self._tasks = BackgroundTasks(log, "a notice could not be sent")
        self._pending: dict[int, tuple[str, Notice]] = {}  # by a number: the way, and the letter
        self._number = 0

    def tell(self, notice: Notice) -> None:
        """Send a notice soon; the log has it in any case."""
        log.info("%s", notice.sentence, extra={"reason": notice.kind})
        for channel in self._channels:
            for letter in channel.letters(notice):
                self._keep(channel, letter)

    def tell_left(self, text: str) -> None:
        """Send what an earlier service could not: what its ``close`` returned."""
        ways = {type(channel).__name__: channel for channel in self._channels}
        for way, letter in _LEFT.validate_json(text):
            if way in ways:
                self._keep(ways[way], letter)
            else:
                _given_up(way, letter)

    async def close(self) -> str:
        """End; return what could not be sent yet as text, "" for nothing, for the next service.

        What is under way at this moment counts as not sent: it may come twice.
        """
        await self._tasks.end()
        left = list(self._pending.values())
        return _LEFT.dump_json(left).decode() if left else ""

    def _keep(self, channel: Channel, letter: Notice) -> None:
        self._number += 1
        self._pending[self._number] = type(channel).__name__, letter
        self._tasks.keep(self._send(channel, self._number, letter))

    async def _send(self, channel: Channel, number: int, notice: Notice) -> None:
        if not await self._sent(channel, notice):
            _given_up(type(channel).__name__, notice)
        del self._pending[number]

    async def _sent(self, channel: Channel, notice: Notice) -> bool:
        pauses = BackOff(self._retry, math.inf)
        for _ in range(TRIES):
            try:
                await channel.send(notice)
            except (OSError, smtplib.SMTPException) as error:
                log.warning(
                    "a notice could not be sent by %s: %s", type(channel).__name__, _what(error),
                    extra={"reason": notice.kind},
                )  # fmt: skip
                if _for_good(error):
                    return False
                await asyncio.sleep(pauses.pause())
            else:
                return True
        return False


def _given_up(way: str, notice: Notice) -> None:
    log.error("a notice is not sent by %s: %s", way, notice.sentence, extra={"reason": notice.kind})


def _codes(error: Exception) -> list[int]:
    """Return what a relay answered, by the people whom it concerns."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return [code for code, _said in error.recipients.values()]
    return [error.smtp_code] if isinstance(error, smtplib.SMTPResponseException) else []


def _what(error: Exception) -> str:
    said = ", ".join(str(code) for code in _codes(error)) or str(error).partition("\n")[0]
    return f"{type(error).__name__} ({said})" if said else type(error).__name__


def _for_good(error: Exception) -> bool:
    """Whether it is refused whenever it is tried: 4xx is for now, 5xx is not."""
    codes = _codes(error)
    return bool(codes) and all(code >= 500 for code in codes)


def channels(
    smtp: str, sender: str, webhook: str, login: tuple[str, str] | None = None, page: str = ""
) -> list[Channel]:
    """Return the channels that a site has set up.

    ``login``: name and password at the relay; ``page``: where a mail sends its reader.

    Raises:
        GPULeaseError: ``bad_option``: an address cannot be used.
    """
    found: list[Channel] = []
    if smtp:
        found.append(Mail(smtp, sender, login, page=page))
    if webhook:
        found.append(Webhook(webhook))
    return found


def checked(url: str, option: str, schemes: Sequence[str]) -> tuple[str, int]:
    """Return host and port of an address.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        host, port, parts = None, 0, urlsplit("")
    if parts.scheme not in schemes or not host:
        raise GPULeaseError(
            "bad_option",
            f"{option} is no address that can be used.",
            next_step=f"Write {schemes[0]}://host:port.",
        )
    return host, port


#: So many of one person are shown at a time; their own oldest goes.
MOST = 5


def may_tell(asker: Asker, group: str) -> bool:
    """Tell whether somebody may write to a group's members; to everybody, admins may."""
    return asker.admin or (bool(group) and asker.teaches(group))


@dataclass(eq=False)
class Messages:
    """The messages that are shown now.

    Args:
        clock: the time, UTC.
        keep: stores the text that ``load`` is given after a restart.
        changed: called when another set of them is shown.
    """

    clock: Callable[[], datetime]
    keep: Callable[[str], Awaitable[None]]
    changed: Callable[[], None]

    def __post_init__(self) -> None:
        self._shown: list[MessageView] = []
        self._lock = asyncio.Lock()

    def load(self, kept: str) -> None:
        """Show what was shown before; "" is nothing."""
        self._shown = json.loads(kept or "[]")

    def shown_to(self, asker: Asker) -> list[MessageView]:
        """Return what somebody is shown now, the newest last: members, and who may tell them."""
        return [
            each
            for each in self._standing()
            if each["group"] in ("", *asker.groups) or may_tell(asker, each["group"])
        ]

    async def tell(self, asker: Asker, group: str, text: str, seconds: float) -> MessageView:
        """Show a text to the members of a group for so long.

        Raises:
            GPULeaseError: ``may_not_tell`` (403), and those of the store.
        """
        self._allow(asker, group)
        now = self.clock()
        until = now + timedelta(seconds=seconds)
        told: MessageView = {
            "id": secrets.token_hex(8),
            "at": now.isoformat(timespec="seconds"),
            "until": until.isoformat(timespec="seconds"),
            "by": asker.name,
            "group": group,
            "text": text.strip(),
        }
        async with self._lock:
            kept = self._standing()
            gone = [each for each in kept if each["by"] == asker.name][: 1 - MOST]
            await self._show([*(each for each in kept if each not in gone), told])
        return told

    async def withdraw(self, asker: Asker, message_id: str) -> None:
        """Show a message no more; a repeat changes nothing.

        Raises:
            GPULeaseError: ``may_not_tell`` (403), and those of the store.
        """
        async with self._lock:
            found = next((each for each in self._shown if each["id"] == message_id), None)
            if found is None:
                return
            self._allow(asker, found["group"])
            await self._show([each for each in self._shown if each is not found])

    def _standing(self) -> list[MessageView]:
        now = self.clock()
        return [each for each in self._shown if datetime.fromisoformat(each["until"]) > now]

    async def _show(self, messages: list[MessageView]) -> None:
        await self.keep(json.dumps(messages))
        self._shown = messages
        self.changed()

    def _allow(self, asker: Asker, group: str) -> None:
        if not may_tell(asker, group):
            whom = f"the members of {group}" if group else "everybody"
            raise GPULeaseError(
                "may_not_tell",
                f"You may not write to {whom}.",
                next_step="Name a group that you teach, or ask an admin.",
                numbers={"group": group},
            )
