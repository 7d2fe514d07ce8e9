"""Threads of home that ran while a GPU cell did, and what they may have read.

Owns the evidence: a thread whose processor time did not move did nothing.  What one may have read
is what its code names and what it was given; into objects of libraries nobody looks.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import sys
import threading
import time
import types
from dataclasses import dataclass, field
from typing import Any

from gpulease.sides.libraries import library
from gpulease.sides.looks import is_a
from gpulease.sides.names.analysis import code_use
from gpulease.sides.threads import stack_of
from gpulease.transfer.values.groups import ATOMIC
from gpulease.transfer.values.kinds.units import is_unit

#: Of a thread that was given more objects than these, everything is thought to be read.
_LIMIT = 200_000
#: A clock that steps in longer strides proves nothing about a short piece of work (nanoseconds).
_STRIDE = 1_000_000
_OWN = frozenset(vars(threading.Thread())) - {"_target", "_args", "_kwargs"}
_CONTAINERS = (list, tuple, set, frozenset, dict)


@dataclass
class Reader:
    """A thread that ran: global ``names`` its code reads, ``objects`` it reaches, by id."""

    thread: str
    names: set[str] = field(default_factory=set)
    objects: dict[int, Any] = field(default_factory=dict)
    unbounded: bool = False

    def take(self, other: Reader) -> None:
        """Add what ``other`` reads."""
        self.names |= other.names
        self.objects |= other.objects
        self.unbounded |= other.unbounded


class ConcurrentThreads:
    """What ran between ``begin`` and ``end``; the main thread's, which waits in between."""

    def __init__(self, ns: dict[str, Any]) -> None:
        self._ns = ns
        self._before: list[tuple[threading.Thread, int | None, Reader]] = []

    def begin(self, running: list[threading.Thread]) -> None:
        """Remember the user's threads that are ``running``."""
        self._before = [(thread, spent(thread), self._reader(thread)) for thread in running]

    def end(self, running: list[threading.Thread]) -> list[Reader]:
        """Return the threads that ran since ``begin``; ``running`` are the user's of now."""
        found = []
        for thread, before, reader in self._before:
            if before is not None and before == spent(thread):
                continue
            if thread.is_alive():
                reader.take(self._reader(thread))  # it may run other code by now
            found.append(reader)
        known = {id(thread) for thread, _, _ in self._before}
        new = [thread for thread in running if id(thread) not in known]
        self._before = []
        return found + [self._reader(thread) for thread in new]

    def _reader(self, thread: threading.Thread) -> Reader:
        reader = Reader(thread.name)
        values: list[Any] = [type(thread)]
        values += [value for name, value in list(vars(thread).items()) if name not in _OWN]
        for frame in stack_of(sys._current_frames().get(thread.ident or 0)):  # noqa: SLF001
            if frame.f_globals is self._ns:
                use = code_use(frame.f_code)
                reader.names |= use.reads
                reader.unbounded |= use.unbounded
                values += _locals_of(frame)
        self._follow(reader, values)
        return reader

    def _follow(self, reader: Reader, values: list[Any]) -> None:
        while values:
            value = values.pop()
            if type(value) in ATOMIC or id(value) in reader.objects:
                continue
            if len(reader.objects) >= _LIMIT:
                reader.unbounded = True
                return
            reader.objects[id(value)] = value
            values += self._inside(reader, value)

    def _inside(self, reader: Reader, value: Any) -> list[Any]:  # noqa: PLR0911 - one a kind
        if is_a(value, types.FunctionType):
            if value.__globals__ is self._ns:
                use = code_use(value.__code__)
                reader.names |= use.reads
                reader.unbounded |= use.unbounded
            return [*(value.__closure__ or ()), *(value.__defaults__ or ())]
        if is_a(value, types.CellType):
            return _contents(value)
        if is_a(value, types.MethodType):
            return [value.__func__, value.__self__]
        if is_a(value, functools.partial):
            return [value.func, value.args, value.keywords]
        if is_a(value, type):
            return list(vars(value).values()) if is_unit(value) else []
        numpy = library("numpy")
        if numpy is not None and is_a(value, numpy.ndarray):
            return [value.base] if value.base is not None else []
        if is_a(value, _CONTAINERS) or is_unit(type(value)):
            return gc.get_referents(value)  # runs nothing of the value's own
        return []


def tasks_alive(ns: dict[str, Any]) -> bool:
    """Say whether the running loop has a task of the notebook's code."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no loop runs here, so no task does
        return False
    frames = (getattr(task.get_coro(), "cr_frame", None) for task in tasks)
    return any(frame is not None and _of_notebook(frame, ns) for frame in frames)


def _of_notebook(frame: types.FrameType, ns: dict[str, Any]) -> bool:
    # A cell with ``await`` is a coroutine too, but one that waits for the switch.
    return frame.f_globals is ns and not frame.f_code.co_name.startswith("<")


def _contents(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _locals_of(frame: types.FrameType) -> list[Any]:
    """Return a running function's variables, and keep none of them alive."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return []  # a cell or a class body: its variables are names
    space = frame.f_locals
    values = list(space.values())
    if type(space) is dict:  # a copy that the frame would keep until it ends
        space.clear()
    return values


def spent(thread: threading.Thread) -> int | None:
    """Return the processor time of a thread in nanoseconds; None when that cannot be known."""
    return _clock(thread.native_id) if thread.native_id is not None and _fine() else None


def _clock(native_id: int) -> int | None:
    # The kernel's number of a thread's clock; unlike pthread_getcpuclockid it is safe to ask for
    # a thread that has ended.
    try:
        return time.clock_gettime_ns((~native_id << 3) | 6)
    except OSError:
        return None


@functools.cache
def _fine() -> bool:
    """Say whether threads' clocks tell a short piece of work from none."""
    mine = threading.get_native_id()
    first = _clock(mine)
    until = time.perf_counter_ns() + _STRIDE
    while time.perf_counter_ns() < until:
        second = _clock(mine)
        if first is not None and second is not None and 0 < second - first < _STRIDE:
            return True
    return False
