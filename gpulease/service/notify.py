"""Tells people by e-mail and other systems by a webhook.

Owns how a notice is sent and that one which cannot be sent is tried again.  Refuses to know what is
worth a notice.
"""

from __future__ import annotations

import asyncio
import json
import logging
import smtplib
import ssl
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from email.message import EmailMessage
from typing import Protocol
from urllib.parse import urlsplit

from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from gpulease.errors import GPULeaseError

log = logging.getLogger(__name__)

#: Seconds between two tries, and how many there are.
RETRY, TRIES = 60.0, 10
_TIMEOUT = 20.0
_PORTS = {"smtp": 25, "smtps": 465}


@dataclass(frozen=True)
class Notice:
    """What somebody is told.

    ``kind`` is ``short``, ``cancelled`` or ``changed``; ``to`` are e-mail addresses.
    """

    kind: str
    group: str
    name: str
    sentence: str
    next_step: str = ""
    to: tuple[str, ...] = ()


class Channel(Protocol):
    """A way to tell people; ``Notifier`` calls it for each notice, and again when it raises."""

    async def send(self, notice: Notice) -> None:
        """Send a notice, or raise ``OSError``."""


class Mail:
    """Sends e-mail through a relay; who has no address is not told.

    With a login everything is encrypted: by ``smtps``, or by STARTTLS before the login is sent.

    Args:
        url: ``smtp://host:port`` or ``smtps://host:port``.
        sender: the address that it comes from.
        login: name and password at the relay, ``None`` where it asks for none.
        context: whom to trust; the system's authorities by default.
    """

    def __init__(
        self,
        url: str,
        sender: str,
        login: tuple[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = checked(url, "notify_smtp", ("smtp", "smtps"))
        self._host, self._port = parts
        self._tls = url.startswith("smtps:")
        self._sender = sender
        self._login = login
        self._context = context or ssl.create_default_context()

    async def send(self, notice: Notice) -> None:
        """Send it to everybody who is to be told."""
        if notice.to:
            await asyncio.to_thread(self._deliver, notice)

    def _deliver(self, notice: Notice) -> None:
        message = EmailMessage()
        message["From"], message["To"] = self._sender, ", ".join(notice.to)
        message["Subject"] = f"[gpulease] {notice.name} of {notice.group}: {notice.kind}"
        message.set_content(f"{notice.sentence}\n{notice.next_step}\n")
        with self._relay() as relay:
            if self._login is not None:
                if not self._tls:
                    relay.starttls(context=self._context)
                relay.login(*self._login)
            relay.send_message(message)

    def _relay(self) -> smtplib.SMTP:
        if self._tls:
            return smtplib.SMTP_SSL(self._host, self._port, timeout=_TIMEOUT, context=self._context)
        return smtplib.SMTP(self._host, self._port, timeout=_TIMEOUT)


class Webhook:
    """Posts each notice as JSON; what is no success is tried again."""

    def __init__(self, url: str) -> None:
        checked(url, "notify_webhook", ("http", "https"))
        self._url = url

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
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, notice: Notice) -> None:
        """Send a notice soon; the log has it in any case."""
        log.info("%s", notice.sentence, extra={"reason": notice.kind})
        for channel in self._channels:
            task = asyncio.create_task(self._send(channel, notice))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what could not be sent yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, channel: Channel, notice: Notice) -> None:
        for number in range(TRIES):
            try:
                await channel.send(notice)
            except (OSError, smtplib.SMTPException) as error:
                what = type(error).__name__
                log.warning("a notice could not be sent by %s: %s", type(channel).__name__, what)
                await asyncio.sleep(self._retry * 2**number)
            else:
                return


def channels(
    smtp: str, sender: str, webhook: str, login: tuple[str, str] | None = None
) -> list[Channel]:
    """Return the channels that a site has set up; ``login``: name and password at the relay.

    Raises:
        GPULeaseError: ``bad_option``: an address cannot be used.
    """
    found: list[Channel] = []
    if smtp:
        found.append(Mail(smtp, sender, login))
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
