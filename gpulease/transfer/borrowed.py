"""Objects that are held only as long as somebody else needs them.

Owns the strong references that the registry needs for lists, dicts, sets and the like, which cannot
be referred to weakly, and for what came without anything that holds it; and the thread that gives
them up: ``del big`` lowers memory within the cell, not at its end.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

#: References to an object that nobody but we hold: our table and the call that counts.
_ONLY_OURS = 2
#: Seconds between two looks, and how many objects one look takes.
_PERIOD = 0.05
_SLICE = 2000


class Borrowed:
    """Oid to object; what only this table holds goes away by itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, Any] = {}
        self._dropped: list[str] = []
        self._kept: list[tuple[list[Any], Callable[[], bool]]] = []
        self._thread: threading.Thread | None = None

    def add(self, oid: str, obj: Any) -> None:
        """Hold ``obj`` while somebody else does."""
        with self._lock:
            self._objects[oid] = obj
            self._watch()

    def keep(self, objects: list[Any], needed: Callable[[], bool]) -> None:
        """Hold ``objects`` while ``needed`` says so (asked on any thread)."""
        with self._lock:
            self._kept.append((objects, needed))
            self._watch()

    def _watch(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=_watch, args=(weakref.ref(self),), name="gpulease-registry", daemon=True
            )
            self._thread.start()

    def get(self, oid: str) -> Any:
        """Return the object, or None."""
        with self._lock:  # whoever gets it holds it before it may be given up
            return self._objects.get(oid)

    def dropped(self) -> list[str]:
        """Return the oids given up since the last call, after one more look at all."""
        while True:
            with self._lock:
                self._look_at_kept()
                before = len(self._objects)
                self._look(list(self._objects))
                if len(self._objects) == before:  # what one held may have held another
                    break
        with self._lock:
            out, self._dropped = self._dropped, []
        return out

    @property
    def thread_id(self) -> int | None:
        """Native id of the watching thread, while there is one."""
        thread = self._thread
        return thread.native_id if thread is not None else None

    def look(self, start: int) -> int:
        """Give up what only we hold, of one slice; return where the next one starts, -1: none."""
        with self._lock:
            self._look_at_kept()
            oids = list(self._objects)
            if not oids and self._kept:
                return 0
            if not oids:
                self._thread = None
                return -1
            self._look(oids[start : start + _SLICE])
        return start + _SLICE if start + _SLICE < len(oids) else 0

    def _look_at_kept(self) -> None:
        self._kept = [(objects, needed) for objects, needed in self._kept if needed()]

    def _look(self, oids: list[str]) -> None:
        unused = [oid for oid in oids if sys.getrefcount(self._objects[oid]) <= _ONLY_OURS]
        for oid in unused:
            del self._objects[oid]
        self._dropped += unused


def _watch(ref: weakref.ref[Borrowed]) -> None:
    pause = threading.Event()
    start = 0
    while start >= 0:
        pause.wait(_PERIOD)
        table = ref()
        if table is None:
            return
        start = table.look(start)
        del table
