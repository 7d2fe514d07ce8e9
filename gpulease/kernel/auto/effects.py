"""What a statement does that running it a second time would do twice.

An audit hook sees most of it: a process cannot remove one, so there is one for all cells.  Printed
and shown output is counted.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Audit events (https://docs.python.org/3/library/audit_events.html) by their beginning, and what
#: whoever raised one had done, as words after "it".
_EVENTS = {
    "open": "had opened a file",
    "os.": "had changed something outside Python",
    "shutil.": "had copied or removed files",
    "tempfile.": "had made a file",
    "subprocess.": "had started a program",
    "pty.": "had started a program",
    "_thread.start": "had started a thread",
    "socket.": "had used the network",
    "urllib.": "had used the network",
    "http.": "had used the network",
    "ftplib.": "had used the network",
    "smtplib.": "had used the network",
    "sqlite3.": "had used a database",
    "signal.": "had sent a signal",
    "fcntl.": "had locked a file",
    "mmap.": "had opened a file",
    "webbrowser.": "had opened a page",
    "builtins.input": "had asked for input",
}
#: Of those, what only looks.
_LOOKS = frozenset((
    "os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.getxattr", "os.listxattr",
    "socket.gethostname",
))  # fmt: skip


class Effects:
    """The last watched statement's; main thread only."""

    _one: Effects | None = None  # the audit hook cannot be removed

    def __init__(self) -> None:
        #: What it did first, as words after "it"; "" for nothing.
        self.seen = ""
        self._watching = False

    @classmethod
    def of_process(cls) -> Effects:
        """Return the one that this process's audit hook speaks to."""
        if cls._one is None:
            one = cls._one = cls()
            main = threading.main_thread().ident

            def hook(event: str, _args: tuple[Any, ...]) -> None:
                if one._watching and not one.seen and threading.get_ident() == main:
                    one.seen = _meant(event)

            sys.addaudithook(hook)
        return cls._one

    def stop(self) -> None:
        """From here on nothing counts."""
        self._watching = False

    @contextmanager
    def watched(self, session: Any) -> Iterator[None]:
        """Watch the body; ``session`` is what sends this kernel's messages."""
        watched = (
            (sys.stdout, "write", "had printed something"),
            (sys.stderr, "write", "had printed something"),
            (session, "send", "had shown something"),
            (threading.Thread, "start", "had started a thread"),  # no audit event before 3.13
        )
        self.seen = ""
        placed: list[tuple[Any, str, Any]] = []
        try:
            for owner, name, words in watched:
                try:
                    own = vars(owner).get(name)
                    setattr(owner, name, self._counting(getattr(owner, name), words))
                    placed.append((owner, name, own))
                except (AttributeError, TypeError):
                    # It is somebody else's stream, and nobody knows what it does.
                    self.seen = "may have printed something"
            self._watching = True
            yield
        finally:
            self._watching = False
            for owner, name, own in placed:
                if own is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, own)

    def _counting(self, function: Any, words: str) -> Any:
        main = threading.main_thread().ident

        def counting(*args: Any, **kwargs: Any) -> Any:
            if self._watching and threading.get_ident() == main:
                self.seen = self.seen or words
            return function(*args, **kwargs)

        return counting


def _meant(event: str) -> str:
    if event in _LOOKS:
        return ""
    return next((words for start, words in _EVENTS.items() if event.startswith(start)), "")
