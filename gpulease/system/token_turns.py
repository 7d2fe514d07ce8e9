"""Whose question about a token is asked when: guessed tokens keep nobody waiting who is known.

A hub or an API server answers a few questions at once.  Anybody may send a token that nobody has,
any number of times, so tokens that were recognised before have turns of their own.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

#: Recognised tokens that are remembered, by digest.
_MOST: Final = 50_000


class TokenTurns:
    """Lets ``strangers`` and, beside them, ``known`` questions be asked at once."""

    def __init__(self, strangers: int, known: int) -> None:
        self._strangers = asyncio.Semaphore(strangers)
        self._of_known = asyncio.Semaphore(known)
        self._known: dict[bytes, None] = {}  # the one recognised last is the last

    async def ask(self, token: str, question: Callable[[], Awaitable[T | None]]) -> T | None:
        """Return what the question finds; ``None`` says that nobody has the token.

        Whatever the question raises leaves a known token known.
        """
        digest = hashlib.sha256(token.encode()).digest()
        async with self._of_known if digest in self._known else self._strangers:
            found = await question()
        self._known.pop(digest, None)
        if found is not None:
            self._known[digest] = None
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return found
