"""Locks and conditions that nobody holds: each is one on both sides, for all who have it.

A held lock belongs to a thread of its side: it stays there, or is refused where the other side has
one that is free.
"""

from __future__ import annotations

import sys
import threading
import types
import weakref
from typing import Any

_LOCK: Any = type(threading.Lock())
_RLOCK: Any = type(threading.RLock())
_LOCKS = (_LOCK, _RLOCK)
_KINDS = (*_LOCKS, threading.Condition)
#: What a condition has of its own; any other attribute is the user's.
_PLAIN = frozenset(vars(threading.Condition()))
#: Those that the other side may have: what stands for a held one would come too late there.
_shared: weakref.WeakSet[Any] = weakref.WeakSet()


def may_be(kind: type) -> bool:
    """Say whether objects of exactly this type travel while they are free."""
    return kind in _KINDS


def is_free(obj: Any) -> bool:
    """Say whether ``obj`` is a lock or condition of which no thread has or waits for anything."""
    kind = type(obj)
    if kind is _LOCK:
        return not obj.locked()
    if kind is _RLOCK:  # to try it would be to hold it, for other threads
        return repr(obj).startswith("<unlocked")
    if kind is not threading.Condition or not vars(obj).keys() <= _PLAIN:
        return False
    lock = lock_of(obj)
    free = type(lock) in _LOCKS and is_free(lock) and not obj._waiters  # noqa: SLF001 - no other way
    return free and not _others_may_notify()


def lock_of(condition: Any) -> Any:
    """Return what a condition is over: others may share it."""
    return condition._lock  # noqa: SLF001 - Python says it nowhere else


def _others_may_notify() -> bool:
    """Say whether a thread of the notebook's code lives: who waits on the other side for its word
    would wait for ever.
    """
    return any(map(_is_of_notebook, threading.enumerate()))


def _is_of_notebook(thread: threading.Thread) -> bool:
    if thread is threading.main_thread():
        return False
    target = getattr(thread, "_target", None)  # gone once the thread ends
    code: Any = getattr(target, "__func__", target)
    space = getattr(code, "__globals__", None) if type(code) is types.FunctionType else None
    main = vars(sys.modules["__main__"])
    return space is main or type(thread).__module__ == "__main__"


def share(obj: Any) -> None:
    """Note that the other side has, or gets, one for this."""
    _shared.add(obj)


def is_shared(obj: Any) -> bool:
    """Say whether the other side may have one for this."""
    return may_be(type(obj)) and obj in _shared


def shell_of(obj: Any) -> tuple[Any, ...]:
    """Return what ``make`` needs for another one."""
    kind = type(obj)
    if kind is threading.Condition:
        return "condition", lock_of(obj)
    return "lock" if kind is _LOCK else "rlock", None


def make(kind: str, lock: Any) -> Any:
    """Return a free one."""
    if kind == "condition":
        made: Any = threading.Condition(lock)
    else:
        made = threading.Lock() if kind == "lock" else threading.RLock()
    share(made)
    return made
