"""Which threads of this process may be the user's.

Owns the guess: every Python thread that was not there at the start and is not known to belong to
the kernel, to a library's housekeeping or to gpulease.
"""

from __future__ import annotations

import threading

_KNOWN = ("gpulease", "IPython", "Heartbeat", "IOPub", "Control", "subshell-", "asyncio_", "pydevd",
          "zmq", "ThreadPoolExecutor", "QueueFeederThread", "ExecutorManagerThread")  # fmt: skip

#: Housekeeping whose threads have no name of their own; the last is pyzmq's, for large messages.
_KNOWN_TYPES = ("TMonitor", "HistorySavingThread", "_DummyThread", "GarbageCollectorThread")

#: Packages whose own threads are housekeeping, whatever they are called.
_KNOWN_PACKAGES = frozenset(
    ("gpulease", "ipykernel", "IPython", "zmq", "tornado", "jupyter_client", "tqdm", "debugpy")
)


class UserThreads:
    """Remembers the threads that were there at the start."""

    def __init__(self) -> None:
        self._known = {id(thread) for thread in threading.enumerate()}
        self._keep = threading.enumerate()

    def alive(self) -> list[str]:
        """Return the names of threads that may run the user's code."""
        return [
            thread.name
            for thread in threading.enumerate()
            if id(thread) not in self._known
            and not thread.name.startswith(_KNOWN)
            and type(thread).__name__ not in _KNOWN_TYPES
            and not _KNOWN_PACKAGES.intersection(_packages(thread))
        ]


def _packages(thread: threading.Thread) -> tuple[str, str]:
    """Return the packages that the thread's class and the function it runs come from."""
    target = getattr(thread, "_target", None)  # gone once the thread ends
    modules = type(thread).__module__, getattr(target, "__module__", None) or ""
    return modules[0].partition(".")[0], modules[1].partition(".")[0]
