"""What an API server's answers say: objects, messages of a watch, errors, whose a token is.

A watch is a stream of bytes that the network cuts anywhere; ``Lines`` puts its lines together.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from gpulease.providers.kubernetes.api.client import (
    ClientError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    Manifest,
    NotFoundError,
    TokenIdentity,
    UnavailableError,
    WatchEvent,
)

#: A pod of the largest size that etcd takes is 1.5 MiB; JSON escapes may triple it.
LONGEST = 8 * 2**20


class Lines:
    """Feed it pieces, get whole lines; what follows the last newline waits for the next piece."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._rest = b""

    def feed(self, piece: bytes) -> list[str]:
        """Return the lines that this piece completes, without blank ones.

        Raises:
            OSError: a line is longer than any that the API sends, or is not UTF-8.
        """
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > self._longest:
            raise OSError(f"a line is longer than {self._longest} bytes")
        try:
            return [line.decode() for line in whole if line.strip()]
        except UnicodeDecodeError as error:
            raise OSError("a line is not UTF-8") from error


#: What a connection can fail with.
TRANSPORT = (aiohttp.ClientError, TimeoutError, OSError, ssl.SSLError)
_EXTRA = "authentication.kubernetes.io/"
_ERRORS: dict[int, type[ClientError]] = {
    400: InvalidError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
}


async def text_of(response: aiohttp.ClientResponse) -> str:
    """Return an answer's text.

    Raises:
        UnavailableError: the connection broke.
    """
    try:
        return await response.text()
    except TRANSPORT as error:
        raise no_answer(error) from error


def object_of(text: str) -> Manifest:
    """Return the object that a text is.

    Raises:
        UnavailableError: it is none: something else answers there.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UnavailableError("the answer is not JSON: something else answers there") from error
    if not isinstance(found, dict):
        raise UnavailableError("the answer is no object: something else answers there")
    return found


async def events_of(response: aiohttp.ClientResponse) -> AsyncIterator[WatchEvent]:
    """Yield the messages of a watch as they come.

    Raises:
        ClientError: what a message says; ``UnavailableError`` where the connection broke.
    """
    lines = Lines()
    try:
        async for chunk in response.content.iter_any():
            for line in lines.feed(chunk):
                yield _event(object_of(line))
    except TRANSPORT as error:
        raise no_answer(error) from error


def _event(found: Manifest) -> WatchEvent:
    kind, about = found.get("type"), found.get("object")
    if not isinstance(kind, str) or not isinstance(about, dict):
        raise UnavailableError("a message of a watch has no type or no object")
    if kind == "ERROR":
        raise _status(int(about.get("code") or 500), about)
    return WatchEvent(kind, about)


def error_of(status: int, text: str, headers: Any) -> ClientError:
    """Return the port's error for a refusal."""
    try:
        said = object_of(text)
    except UnavailableError:
        said = {}
    try:
        retry_after = float(headers.get("Retry-After", 0))
    except ValueError:
        retry_after = 0.0
    return _status(status, said, retry_after)


def _status(status: int, said: Manifest, retry_after: float = 0.0) -> ClientError:
    reason = str(said.get("reason") or "")
    message = str(said.get("message") or reason or f"HTTP status {status}")
    kind = _ERRORS.get(status)
    if kind is None:
        return UnavailableError(message, status=status, reason=reason, retry_after=retry_after)
    return kind(message, status=status, reason=reason)


def no_answer(error: BaseException) -> UnavailableError:
    """Return the port's error for a connection that failed."""
    # The text of a transport's error may hold an address, never a token: tokens go in headers.
    return UnavailableError(f"the API server does not answer: {error or type(error).__name__}")


def identity_of(status: Manifest, audience: str) -> TokenIdentity | None:
    """Return whose token a review names, ``None`` where it is not valid for ``audience``."""
    if not status.get("authenticated") or audience not in (status.get("audiences") or []):
        return None
    user = status.get("user") or {}
    extra = user.get("extra") or {}

    def first(name: str) -> str:
        return str((extra.get(_EXTRA + name) or [""])[0])

    return TokenIdentity(
        username=str(user.get("username", "")),
        pod=first("pod-name"),
        pod_uid=first("pod-uid"),
        node=first("node-name"),
        groups=tuple(user.get("groups") or ()),
    )
