"""What other threads hand to the home kernel's main thread."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable


class Inbox:
    """Events for the main thread: callables, run there in order.

    ``wake`` is called after each put, from any thread; the kernel makes it schedule ``run_ready``
    on its event loop, so that events are handled between cells too.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._items: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake = wake
        self._waiting = False  # the main thread is in ``wait_for``, and takes what comes
        self.nudge: Callable[[], None] = lambda: None

    def put(self, action: Callable[[], None], *, urgent: bool = False) -> None:
        """Hand ``action`` to the main thread; any thread may call it.

        ``urgent``: also ends a wait for the person's input, which does not look into this inbox.
        """
        self._items.put(action)
        if not self._waiting:
            self._wake()
        if urgent:
            self.nudge()

    def run_one(self, timeout: float | None) -> bool:
        """Wait at most ``timeout`` seconds (None: for ever) and run one; False when none came.

        A KeyboardInterrupt ends the wait; an event is then lost only if it was being run.
        """
        try:
            action = self._items.get(timeout=timeout)
        except queue.Empty:
            return False
        action()
        return True

    def run_ready(self) -> None:
        """Run what is there now, without waiting."""
        while True:
            try:
                action = self._items.get_nowait()
            except queue.Empty:
                return
            action()

    def wait_for(self, done: Callable[[], bool], deadline: float | None = None) -> bool:
        """Run events until ``done()``; False when ``deadline`` (monotonic seconds) passed first."""
        before, self._waiting = self._waiting, True
        try:
            while not done():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self.run_one(left)
            return True
        finally:
            self._waiting = before
            if not before and not self._items.empty():
                self._wake()  # it came when it was to be taken here, and was not
