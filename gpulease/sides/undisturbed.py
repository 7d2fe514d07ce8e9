"""A commit that neither an interrupt nor another thread comes into."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator

#: A process commits on one thread: home's on the main one, the companion's on its worker.  The
#: switch interval and the handler are the process's own, so where both sides live in one process
#: a second commit waits; else it would take the first one's long interval for the usual one.
_ONE_AT_A_TIME = threading.RLock()
#: Switch intervals in seconds: of the last turn that others get before a commit, and during it.
_TURN = 0.001
_LONG = 1.0


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back interrupts (on the main thread) and other threads while the body runs.

    One at a time in a process; the same thread may enter it again.
    """
    with _ONE_AT_A_TIME, _held_back():
        yield


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    held: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None
    masked = main and handler is not None
    if masked:
        signal.signal(signal.SIGINT, lambda number, _frame: held.append(number))
    interval = sys.getswitchinterval()
    try:
        # A thread that waits for its turn already would come in by the interval that it began
        # with, and keep this one out for a long one.  So it gets its turn now, a short one; then
        # it waits again, by the long interval.
        sys.setswitchinterval(_TURN)
        time.sleep(0)
        sys.setswitchinterval(_LONG)
        yield
    finally:
        sys.setswitchinterval(interval)
        if masked:
            signal.signal(signal.SIGINT, handler)
    if held:
        signal.raise_signal(signal.SIGINT)
