"""Makes a staged shipment visible, as a whole and at once.

Owns the assignment of names and of contents of live units, with interrupts masked and without
letting another thread run in between.  Everything was loaded before: what happens here is
assignment only, and what fails all the same is named.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpulease.transfer.registry import Registry
from gpulease.transfer.values.kinds.units import apply_content

from .staging import Loaded, LoadError, Staging
from .transplant import keep_objects

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
        # it waits anew, by the long interval.
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


def commit(
    staging: Staging,
    ns: dict[str, Any],
    remove: Iterable[str],
    *,
    lasting: Registry,
    may_bind: Callable[[str], bool] = lambda _name: True,
) -> list[str]:
    """Apply every loaded group and drop ``remove``; return the names that were bound.

    A group that a library does not let be put in place (a device without room, say) is moved from
    ``staging.loaded`` to ``staging.failed``, and its names are dropped: what they were bound to may
    hold a part of it.
    """
    bound: list[str] = []
    for index, loaded in list(staging.loaded.items()):
        try:
            _put_in_place(staging, loaded)
            keep_objects(loaded.names, loaded.arrived.lasting, lasting, may_bind)
        except Exception as error:  # noqa: BLE001 - whatever a library makes of being written to
            staging.failed[index] = LoadError(_said(error))
            del staging.loaded[index]
            for name in filter(may_bind, loaded.names):
                ns.pop(name, None)
            continue
        for name, value in loaded.names.items():
            if may_bind(name):
                ns[name] = value
                bound.append(name)
    for name in remove:
        ns.pop(name, None)
    staging.adopt()
    return bound


def _put_in_place(staging: Staging, loaded: Loaded) -> None:
    for oid, content in staging.contents(loaded):
        if oid not in staging.fresh:
            apply_content(staging.units[oid], content, staging.codes.get(oid))
    loaded.apply()


def _said(error: Exception) -> str:
    text = [line[:200] for line in str(error).strip().splitlines()[:1]]
    what = ": ".join([type(error).__name__, *text])
    return f"it was put in place in part only ({what})"
