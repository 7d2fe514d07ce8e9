"""What a hostile or broken peer sends: messages cut, mixed up, repeated, swollen and bent.

The bytes are made from messages that are right, by a seed that can be given again
(``GPULEASE_FUZZ_SEED``).
"""

from __future__ import annotations

import asyncio
import copy
import ctypes
import gc
import json
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psutil
import pytest

from tests.helpers import wait_for_async

#: How long a channel is fuzzed, in seconds: at night for minutes, else as many messages as `SHORT`
#: says, so that it is the same on every machine.
LONG = [
    pytest.param(0, id="short"),
    pytest.param(180, marks=[pytest.mark.nightly, pytest.mark.timeout(900)]),
]
SHORT = 250
#: Bytes by which the process may have grown when it is over.
GROWTH = 64 * 2**20
ODD: Sequence[Any] = (
    None, True, -1, 0, 2**31, 2**70, 1e308, float("nan"), "", "x" * 300, "\ud800", "\x00", [], {},
    [[]], {"id": {}}, [None] * 50,
)  # fmt: skip


class Fuzz:
    """Makes what is sent, from a seed; the short form always has the same."""

    def __init__(self, seconds: int) -> None:
        given = os.environ.get("GPULEASE_FUZZ_SEED", "" if seconds else "8")
        self.seed = int(given) if given else random.randrange(2**32)
        self._random = random.Random(self.seed)
        self._seconds = seconds
        self.sent = 0

    def __str__(self) -> str:
        return f"GPULEASE_FUZZ_SEED={self.seed} repeats it, {self.sent} were sent"

    async def frames(self, messages: Sequence[Any]) -> AsyncIterator[bytes]:
        """Yield what to send until it is enough; other tasks run between."""
        end = time.monotonic() + self._seconds
        while time.monotonic() < end if self._seconds else self.sent < SHORT:
            for frame in self._some(messages):
                self.sent += 1
                yield frame
            await asyncio.sleep(0)

    def chance(self, of: int) -> bool:
        """Tell whether now is one of so many times."""
        return self._random.randrange(of) == 0

    def _some(self, messages: Sequence[Any]) -> Iterator[bytes]:
        """Yield a few: mixed up and repeated, most of them bent."""
        pick = self._random
        for message in pick.choices(messages, k=pick.randint(1, 8)):
            found = message
            for _ in range(pick.choice((0, 1, 1, 2))):
                found = self._bent(copy.deepcopy(found))
            yield self._torn(json.dumps(found).encode())

    def _bent(self, message: Any) -> Any:
        """Return it with something dropped, replaced or swollen."""
        pick = self._random
        if isinstance(message, dict) and message:
            name = pick.choice(list(message))
            if pick.randrange(4) == 0:
                del message[name]
            elif pick.randrange(2) and isinstance(message[name], dict | list):
                message[name] = self._bent(message[name])
            else:
                message[name] = pick.choice(ODD)
            return message
        if isinstance(message, list) and message:
            at = pick.randrange(len(message))
            message[at] = self._bent(message[at])
            return message * pick.choice((1, 1, 50))
        return pick.choice(ODD)

    def _torn(self, frame: bytes) -> bytes:
        pick = self._random
        kind = pick.randrange(12)
        if kind == 0:
            return frame[: pick.randrange(len(frame))]
        if kind == 1:
            at = pick.randrange(len(frame))
            return frame[:at] + bytes([pick.randrange(256)]) + frame[at + 1 :]
        if kind == 2:
            return pick.randbytes(pick.randrange(200))
        if kind == 3 and self.chance(50):
            return b"[" * pick.choice((3_000, 300_000))
        return frame


class _Failures(logging.Handler):
    """Keeps what the log tells with a traceback; pytest's own would keep every line, in memory."""

    def __init__(self, told: str) -> None:
        super().__init__()
        self._told = told
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not record.getMessage().startswith(self._told):
            self.records.append(record)


@contextmanager
def _failures(told: str) -> Iterator[list[logging.LogRecord]]:
    root, found = logging.getLogger(), _Failures(told)
    before, root.handlers = root.handlers, [found]
    try:
        yield found.records
    finally:
        root.handlers = before


@asynccontextmanager
async def unharmed(fuzz: Fuzz, told: str = "-") -> AsyncIterator[None]:
    """Hold a process to what it was: nothing failed in it, no task is left, no memory kept.

    Args:
        told: how the log begins to tell, with a traceback, that it was sent nonsense.
    """
    failed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    gc.collect()
    tasks, memory = len(asyncio.all_tasks()), psutil.Process().memory_info().rss
    with _failures(told) as bad:
        yield
        await wait_for_async(lambda: len(asyncio.all_tasks()) <= tasks, 60, f"the tasks; {fuzz}")
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the C library keeps of freed memory is nobody's
    grown = psutil.Process().memory_info().rss - memory
    assert fuzz.sent > 100, f"too few to tell: {fuzz}"
    assert not failed, f"{failed[:3]}; {fuzz}"
    assert not bad, f"{bad[0].getMessage()}: {bad[0].exc_info}; {fuzz}"
    assert grown < GROWTH, f"the process grew by {grown} bytes; {fuzz}"
