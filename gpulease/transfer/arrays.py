"""The memory of numpy arrays: whose it is, and which arrays share it.

Owns address ranges and owners of buffers; it knows nothing of names, groups or pickles' form.
"""

from __future__ import annotations

import array
import bisect
import ctypes
import operator
import pickle
import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal

from gpulease.transfer_next.addresses import byte_bounds

#: A framework's tensor over the memory of one does not say so.
HOLDERS = (bytearray, array.array)
_OWNERS = (bytearray, array.array, ctypes.Array, ctypes.Structure, ctypes.Union)


#: Whether the other side knows an array by an id.
Known = Callable[[Any], bool]


class Storage:
    """Memory that several arrays of one group share."""

    def __init__(self, low: int, high: int, keep: list[Any]) -> None:
        self.low = low
        self.size = high - low
        self.keep = keep

    def buffer(self) -> pickle.PickleBuffer:
        """Return the memory for a pickle, without a copy."""
        raw = (ctypes.c_ubyte * self.size).from_address(self.low)
        raw._gpulease_keep = self.keep  # type: ignore[attr-defined]  # noqa: SLF001
        return pickle.PickleBuffer(memoryview(raw).cast("B"))


class SharedMemory:
    """The memory that more than one of a group's arrays shows, found by address."""

    def __init__(
        self, arrays: list[Any], owners: Iterable[Any] = (), known: Known = lambda _array: False
    ) -> None:
        shown = {id(a): a for a in arrays if a.size and not a.dtype.hasobject}
        roots = {id(o): o for a in shown.values() if (o := root_of(a)) is not a}
        shown |= {key: o for key, o in roots.items() if key not in shown and _is_met(o, known)}
        spans = [(*byte_bounds(a), a, False) for a in shown.values()]
        spans += [(*span_of(owner), owner, True) for owner in owners]
        spans.sort(key=operator.itemgetter(0, 1))
        #: ``id`` of the arrays that share memory with another one, and of what stands for it.
        self.ids: set[int] = set()
        self._runs: list[tuple[int, int, Any]] = []
        run: list[tuple[int, int, Any, bool]] = []
        end = -1
        for span in spans:
            if span[0] >= end:
                self._add(run)
                run = []
            run.append(span)
            end = max(end, span[1])
        self._add(run)

    def _add(self, run: list[tuple[int, int, Any, bool]]) -> None:
        if len(run) < 2:
            return
        low, high = run[0][0], max(span[1] for span in run)
        self.ids.update(id(span[2]) for span in run)
        whole = next(
            (o for at, end, o, is_given in run if is_given and (at, end) == (low, high)), None
        )
        if whole is None:  # what the others have as their ``base``
            able = [o for at, end, o, _ in run if (at, end) == (low, high) and is_whole(o)]
            whole = able[0] if len(able) == 1 else _beneath([span[2] for span in run], low, high)
        stands = Storage(low, high, [span[2] for span in run]) if whole is None else whole
        self.ids.add(id(stands))
        self._runs.append((low, high, stands))

    @property
    def stands(self) -> list[Any]:
        """What stands for memory that is shared."""
        return [stands for _, _, stands in self._runs]

    def at(self, address: int) -> tuple[int, Any] | None:
        """Return where the memory at an address begins and what stands for it, if it is shared."""
        found = self._run(address)
        return (found[0], found[2]) if found is not None else None

    def stands_for(self, array_: Any) -> Any:
        """Return what stands for the memory that an array shows, None where it is not shared."""
        found = self._run(byte_bounds(array_)[0])
        return None if found is None else found[2]

    def size_at(self, address: int) -> int:
        """Return the bytes of the shared memory at an address, 0 where it is not shared."""
        found = self._run(address)
        return found[1] - found[0] if found is not None else 0

    def _run(self, address: int) -> tuple[int, int, Any] | None:
        index = bisect.bisect_right(self._runs, address, key=operator.itemgetter(0)) - 1
        found = self._runs[index] if index >= 0 else None
        return found if found is not None and address < found[1] else None


def _beneath(arrays: list[Any], low: int, high: int) -> Any:
    """Return the one array that all of these are views of, if it is neither more nor less.

    No name may lead to it: ``numpy.arange(6).reshape(2, 3)`` is such a view.
    """
    wholes = {id(whole): whole for whole in map(root_of, arrays)}
    if len(wholes) > 1:
        return None
    whole = next(iter(wholes.values()))
    return whole if is_whole(whole) and byte_bounds(whole) == (low, high) else None


def _is_met(array_: Any, known: Known) -> bool:
    return is_whole(array_) and known(array_)


def root_of(array_: Any) -> Any:
    """Return the last array of those that one is a view of, itself where it is none."""
    numpy_array = getattr(sys.modules.get("numpy"), "ndarray", ())
    while isinstance(base := getattr(array_, "base", None), numpy_array):
        array_ = base
    return array_


def shared_by(
    arrays: list[Any], inner: Iterable[Any], known: Known, *, faces: bool
) -> SharedMemory:
    """Find memory that several arrays show, or one of another that is ``known``.

    With ``faces``, objects that do not say whose memory they show, owners are looked for among
    ``inner``.
    """
    return SharedMemory(arrays, filter(is_owner, inner) if faces else (), known)


def is_whole(array_: Any) -> bool:
    """Say whether an array is a view of no other, so that views of it name it as their base."""
    numpy_array = getattr(sys.modules.get("numpy"), "ndarray", ())
    plain = type(array_) is numpy_array and not isinstance(array_.base, numpy_array)
    return plain and bool(array_.flags.forc)


def is_owner(obj: Any) -> bool:
    """Say whether arrays may be made over an object that has memory of its own."""
    return isinstance(obj, _OWNERS) and not hasattr(obj, "_gpulease_keep")


def span_of(owner: Any) -> tuple[int, int]:
    """Return first and one past the last address of an owner's memory."""
    size = memoryview(owner).nbytes
    low = address_of(owner) if size else 0
    return low, low + size


def address_of(owner: Any) -> int:
    """Return where the memory of an object begins."""
    return ctypes.addressof((ctypes.c_char * 0).from_buffer(owner))


def order_of(array_: Any) -> Literal["C", "F"]:
    """Return how an array's elements lie in memory, numpy's or a library's that is like it."""
    return "F" if array_.flags.f_contiguous and not array_.flags.c_contiguous else "C"


def buffer_owner(array_: Any) -> Any:
    """Return the bytearray, ``array.array`` or ctypes object whose memory an array shows."""
    base = array_.base
    while isinstance(base, type(array_)):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if is_owner(base) else None
