"""Which threads of this process may be the user's.

It is a guess: every Python thread that runs the notebook's code, or was not there at the start and
is not known to belong to the kernel, to a library's housekeeping or to gpulease.
"""

from __future__ import annotations

import sys
import threading
import types
from typing import Any

from gpulease.sides.libraries import magics

_KNOWN = ("gpulease", "IPython", "Heartbeat", "IOPub", "Control", "subshell-", "asyncio_",
          "asyncio-waitpid-", "pydevd", "zmq", "ThreadPoolExecutor", "QueueFeederThread",
          "ExecutorManagerThread", "fsspecIO")  # fmt: skip

#: Housekeeping whose threads have no name of their own; the last is pyzmq's, for large messages.
_KNOWN_TYPES = ("TMonitor", "HistorySavingThread", "_DummyThread", "GarbageCollectorThread")

#: Packages whose own threads are housekeeping, whatever they are called.
_KNOWN_PACKAGES = frozenset(
    ("gpulease", "ipykernel", "IPython", "zmq", "tornado", "jupyter_client", "tqdm", "debugpy")
)


class UserThreads:
    """Remembers the threads that were there at the start; ``ns`` is the notebook's namespace."""

    def __init__(self, ns: dict[str, Any] | None = None) -> None:
        self._ns = ns
        self._known = {id(thread) for thread in threading.enumerate()}
        self._keep = threading.enumerate()

    def alive(self) -> list[str]:
        """Return the names of threads that may run the user's code."""
        return [thread.name for thread in self.running()]

    def running(self) -> list[threading.Thread]:
        """Return the threads that may run the user's code."""
        stacks = sys._current_frames()  # noqa: SLF001 - documented, for this very use
        try:
            return [
                thread
                for thread in threading.enumerate()
                if self._may_be_new(thread) or self._in_notebook(thread, stacks)
            ]
        finally:
            # This very frame is among them: a cycle that would keep what other threads pack, and
            # a collector that clears a memory view in use there ends the process.
            stacks.clear()

    def _may_be_new(self, thread: threading.Thread) -> bool:
        return (
            id(thread) not in self._known
            and not thread.name.startswith(_KNOWN)
            and type(thread).__name__ not in _KNOWN_TYPES
            and not _KNOWN_PACKAGES.intersection(_packages(thread))
            and not _waits_for_scripts(thread)
        )

    def _in_notebook(self, thread: threading.Thread, stacks: dict[int, types.FrameType]) -> bool:
        """A pool's worker is the pool's, but not while it runs a function of the notebook."""
        if thread is threading.main_thread() or thread.name.startswith("gpulease"):
            return False
        frame = stacks.get(thread.ident or 0)
        while frame is not None:  # in a loop of its own: many threads are looked at for each cell
            if frame.f_globals is self._ns:
                return True
            frame = frame.f_back
        return False


def _packages(thread: threading.Thread) -> tuple[str, str]:
    """Return the packages that the thread's class and the function it runs come from."""
    target = getattr(thread, "_target", None)  # gone once the thread ends
    modules = type(thread).__module__, getattr(target, "__module__", None) or ""
    return modules[0].partition(".")[0], modules[1].partition(".")[0]


def _waits_for_scripts(thread: threading.Thread) -> bool:
    """Say whether the thread runs the loop that IPython makes for ``%%bash`` and the like."""
    loop = getattr(magics("ScriptMagics"), "event_loop", None)
    return loop is not None and getattr(getattr(thread, "_target", None), "__self__", None) is loop
