"""What several rooms' tests share: waiting for something, and finding the system's programs.

Nothing here knows a room, but for how the demo chooses ports.  It owns the only sleeps of the
suite: a test names the condition it waits for and the longest time it may take.
"""

import asyncio
import inspect
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, overload

T = TypeVar("T")

POLL_SECONDS = 0.02
#: `make test-nightly` sets it; without it, tests with the marker `nightly` are not collected.
NIGHTLY = os.environ.get("GPULEASE_NIGHTLY") == "1"


def draws(number: int) -> int:
    """Return of how many examples to draw: so many, and at night thirty times as many."""
    return number * (30 if NIGHTLY else 1)


class WaitedTooLongError(AssertionError):
    """The condition did not come true in time; the text says which, and what was seen last."""


def wait_for(condition: Callable[[], T], seconds: float = 30.0, what: str = "") -> T:
    """Poll `condition` until it is truthy and return its value.

    A condition may raise AssertionError for "not yet": the last one is shown in the failure.
    Deadlines should be generous: the machine may be busy, and success returns at once.
    """
    deadline = time.monotonic() + seconds
    while True:
        value, doubt = _look(condition)
        if value:
            return value
        if time.monotonic() > deadline:
            raise WaitedTooLongError(_complaint(condition, seconds, what, value, doubt)) from doubt
        time.sleep(POLL_SECONDS)


@overload
async def wait_for_async(
    condition: Callable[[], Awaitable[T | None]],
    seconds: float = ...,
    what: str = ...,
    every: float = ...,
) -> T: ...
@overload
async def wait_for_async(
    condition: Callable[[], T | None], seconds: float = ..., what: str = ..., every: float = ...
) -> T: ...
async def wait_for_async(
    condition: Callable[[], Any], seconds: float = 30.0, what: str = "", every: float = POLL_SECONDS
) -> Any:
    """Do the same on a running event loop; the condition may be a coroutine function.

    One that asks the service does so no more often than a person may (``every``, in seconds).
    """
    deadline = time.monotonic() + seconds
    while True:
        value: Any = None
        doubt: AssertionError | None = None
        try:
            found = condition()
            value = await found if inspect.isawaitable(found) else found
        except AssertionError as error:
            doubt = error
        if value:
            return value
        if time.monotonic() > deadline:
            raise WaitedTooLongError(_complaint(condition, seconds, what, value, doubt)) from doubt
        await asyncio.sleep(every)


def _look(condition: Callable[[], T]) -> tuple[T | None, AssertionError | None]:
    try:
        return condition(), None
    except AssertionError as error:
        return None, error


def _complaint(
    condition: object, seconds: float, what: str, value: object, doubt: AssertionError | None
) -> str:
    name = what or getattr(condition, "__name__", repr(condition))
    seen = f"raised {doubt}" if doubt else f"last value {value!r}"
    return f"waited {seconds:g} s for: {name} ({seen})"


def chromium_path() -> str | None:
    """Return Chromium's executable (Debian's package), or None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def postgresql_bin() -> Path | None:
    """Return the directory of `initdb` and `postgres`, the newest version found, or None."""
    named = shutil.which("initdb")
    if named:
        return Path(named).resolve().parent
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"),
        key=lambda path: int(path.parts[-3]) if path.parts[-3].isdigit() else 0,
    )
    return found[-1].parent if found else None


def process_is_gone(pid: int) -> bool:
    """Tell whether a process has ended; a zombie has ended too."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def is_root() -> bool:
    """Tell whether the tests run as root (PostgreSQL's programs refuse to)."""
    return os.geteuid() == 0


def may_mount() -> bool:
    """Tell whether a process may be given mounts of its own."""
    if not is_root() or shutil.which("unshare") is None:
        return False
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return tried.returncode == 0


@asynccontextmanager
async def tcp_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve connections at a port of this machine and yield it; none of them outlives the block."""
    talks: dict[asyncio.StreamWriter, asyncio.Task[Any] | None] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks[writer] = asyncio.current_task()
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer, task in talks.items():
            writer.transport.abort()  # it waits for nobody: the other end may never answer
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, talks.values()), return_exceptions=True)
        await server.wait_closed()
