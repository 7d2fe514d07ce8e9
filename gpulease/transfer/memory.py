"""Memory by address: arrays that show the same bytes travel as views of one memory.

Each array is taken to the array or buffer that owns its bytes, and travels as a view of that: the
owner is an object like others, so that the components of all who show it are one.  Frames, images
and columns travel by value, until a survey has seen that an array shows the same bytes: then they
are packed again, over that array's memory.  What shows memory that we cannot name on the other side
is refused.
"""

from __future__ import annotations

import array
import bisect
import ctypes
import itertools
import mmap
import operator
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpulease.sides.libraries import library, package_of
from gpulease.wire.memory import OwnedBytes

from . import pieces, rebuild
from .refuse import RefusedError

#: Exporters of a buffer that travel themselves.
EXPORTERS = (bytearray, array.array)
_SMALL = 4096
#: Libraries whose arrays nobody writes to.
_FROZEN = frozenset({"jaxlib", "pyarrow"})


class Memory:
    """The memories of one survey."""

    def __init__(self) -> None:
        #: Address and size -> the array that stands for what something of compiled code owns.
        self._foreign: dict[tuple[int, int], Any] = {}
        #: Where memory of arrays and buffers begins -> where it ends, and its owner.
        self._owners: dict[int, tuple[int, Any]] = {}
        self._starts: list[int] = []
        #: Memory that frames and images show, while they travel by value.
        self._by_value: set[tuple[int, int]] = set()
        #: Where memory begins that they share with an array.
        self._shared: set[int] = set()
        self._framed: dict[tuple[int, int], InFrame] = {}
        self._wholes: dict[int, Whole] = {}
        self._copies: dict[int, Any] = {}

    def framed(self, found: Any, block: int) -> InFrame:
        """Return what stands for an array inside a part of a frame while it is packed."""
        return self._framed.setdefault((id(found), block), InFrame(found))

    def owns(self, owner: Any, low: int, high: int) -> None:
        """Note the owner of memory that an array shows."""
        self._owners.setdefault(low, (high, owner))

    def shown(self, found: Any) -> bool:
        """Say whether memory that a frame or an image shows is an array's, too."""
        low, high = _bounds(found)
        if low == high:
            return False
        start = self._start_of(low, high)
        if start in self._shared:
            return True
        self._by_value.add((low, high))
        return False

    def _start_of(self, low: int, high: int) -> int | None:
        if len(self._starts) != len(self._owners):
            self._starts = sorted(self._owners)
        index = bisect.bisect_right(self._starts, low) - 1
        start = self._starts[index] if index >= 0 else None
        return None if start is None or high > self._owners[start][0] else start

    def crossing(self, exporters: Iterable[Any]) -> bool:
        """Say whether frames or images show memory of arrays, or of ``exporters``, newly found."""
        if not self._by_value:
            return False
        for each in exporters:
            if len(each):
                flat = library("numpy").frombuffer(each, "u1")
                self.owns(each, *_bounds(flat))
        found = (self._start_of(low, high) for low, high in self._by_value)
        new = {start for start in found if start is not None} - self._shared
        if new:  # all of them are packed again
            self._shared |= new
            self._by_value.clear()
            self._framed.clear()
        return bool(new)

    def copied(self, found: Any) -> Any:
        """Return a copy of an array, the same within a survey."""
        known = self._copies.get(id(found))
        if known is None:
            known = self._copies[id(found)] = found.view(_plain()).copy(order="C")
        return known

    def spread(self, root: Any) -> Any:
        """Return bytes in which an array that has gaps lies as it does in its own memory."""
        known = self._copies.get(id(root))
        if known is None:
            np = library("numpy")
            low, high = _bounds(root)
            known = self._copies[id(root)] = np.zeros(high - low, "u1")
            shown = np.ndarray(root.shape, root.dtype, known, address(root) - low, root.strides)
            shown[...] = root
        return known

    def whole(self, found: Any) -> Whole:
        """Return what stands for the bytes of an array while it is packed."""
        return self._wholes.setdefault(id(found), Whole(found))

    def owner(self, found: Any) -> tuple[Any, Any]:
        """Return the array that owns the bytes, or the buffer under it (then the second one)."""
        np = library("numpy")
        root = found
        while True:
            base = root.base
            if type(base) is memoryview:
                base = base.obj
            if base is not None and not isinstance(base, np.ndarray):
                # Of what as_strided leaves in between, and of a view that Cython has made.
                inner = getattr(base, "base", None)
                base = inner if isinstance(inner, np.ndarray) else base
            if base is None or type(base) is OwnedBytes:
                return root, None
            if isinstance(base, np.ndarray):
                root = base
                continue
            if isinstance(base, EXPORTERS):
                return root, base
            start = self._start_of(*_bounds(root))
            known = None if start is None else self._owners[start][1]
            if known is not None:
                return (root, known) if isinstance(known, EXPORTERS) else (known, None)
            return self._of_others(root, base), None

    def _of_others(self, root: Any, base: Any) -> Any:
        """Return the array that stands for memory which belongs to something of compiled code."""
        kind = type(base)
        is_frozen = package_of(kind) in _FROZEN and not root.flags.writeable
        # What numba's functions return is over a ``_MemInfo``, which has nothing but the memory.
        if kind is bytes or kind.__name__ in ("PyCapsule", "_MemInfo") or is_frozen:
            low, high = _bounds(root)
            for (start, end), known in self._foreign.items():
                if start <= low and high <= end:
                    return known
                if low < end and start < high:
                    raise RefusedError("an array over memory that another shows in part", root)
            return self._foreign.setdefault((low, high), root)
        name = f"{kind.__module__}.{kind.__qualname__}"
        words = "a ctypes array" if isinstance(base, ctypes.Array) else f"memory of a {name}"
        words = _WORDS.get(kind.__name__, words)
        raise RefusedError(f"an array over {words}", root)

    def holds(self) -> Iterator[Any]:
        """Return what these tables hold, once for each time."""
        for table in (self._foreign, self._wholes, self._framed, self._copies):
            yield from table.values()
        yield from (owner for _, owner in self._owners.values())


_WORDS = {
    "_BytesIOBuffer": "the buffer of a BytesIO", "mmap": "a writable memory map",
    "BytesIO": "the buffer of a BytesIO",
}  # fmt: skip


class InFrame:
    """An array inside a pandas object, which copies on write what it shares with other frames."""

    __slots__ = ("array",)

    def __init__(self, found: Any) -> None:
        self.array = found


#: Libraries of which objects show memory that an array may show, too.
_LIBRARIES = frozenset({"pandas", "PIL", "polars", "pyarrow"})


def shows_memory(kind: type) -> bool:
    """Say whether objects of this type may show the memory of an array."""
    return kind is InFrame or package_of(kind) in _LIBRARIES


class Whole:
    """The bytes of an array of a class of its own, of which it is a view on the other side."""

    __slots__ = ("array",)

    def __init__(self, found: Any) -> None:
        self.array = found


def _bounds(found: Any) -> tuple[int, int]:
    np = library("numpy")
    low, high = np.lib.array_utils.byte_bounds(found)
    return int(low), int(high)


def base_of(found: Any) -> Any:
    """Return what is under an array and the arrays that it is a view of, None for nothing."""
    while isinstance(found, _plain()):
        found = found.base
    return found


def address(found: Any) -> int:
    """Return where an array's first element is."""
    return int(found.__array_interface__["data"][0])


def _raw(root: Any) -> Any:
    """Return the bytes of an array that owns them, in memory's order; small ones are copied."""
    flat = root.view(_plain()).ravel(order="K").view("u1")
    return flat.tobytes() if flat.nbytes < _SMALL else pickle.PickleBuffer(flat)


def _plain() -> Any:
    return library("numpy").ndarray


def reduce_array(memory: Memory, found: Any, large: Callable[[Any], str]) -> Any:
    """Reduce an array to a view of its memory, or to the memory if it owns it.

    ``large`` notes an array whose memory travels in pieces, and returns its id.
    """
    np = library("numpy")
    if isinstance(found, np.memmap):
        if getattr(found, "mode", "r") in ("r+", "w+"):
            raise RefusedError("a writable memmap", found)
        return _reduce_map(memory, found)
    if found.dtype == object:
        return _reduce_objects(memory, found)
    if found.dtype.hasobject or found.dtype.kind == "T":
        if found.base is not None:
            raise RefusedError(f"a view of an array of {type(found.dtype).__name__}", found)
        return NotImplemented
    return _reduce_bytes(memory, found, large) if found.dtype.itemsize else NotImplemented


def _reduce_map(memory: Memory, found: Any) -> Any:
    """Reduce a read-only map of a file to what it shows: nobody can change that through it."""
    np = library("numpy")
    plain = memory.copied(found)
    made = (memory.whole(plain), np.memmap, found.dtype, found.shape, plain.strides, 0, False)
    space = {
        name: None if isinstance(value, mmap.mmap) else value
        for name, value in found.__dict__.items()
    }
    return rebuild.view, made, (space,), None, None, rebuild.fill_array


def _reduce_bytes(memory: Memory, found: Any, large: Callable[[Any], str]) -> Any:
    np = library("numpy")
    root, exporter = memory.owner(found)
    writeable = found.flags.writeable
    if exporter is not None:
        start, end = _bounds(np.frombuffer(exporter, "u1"))
        memory.owns(exporter, start, end)
        return _view(found, exporter, start)
    start, end = _bounds(root)
    memory.owns(root, start, end)
    if not root.flags.forc:
        return _view(found, memory.spread(root), start)
    if type(root) is not np.ndarray:
        # The other side's is a view of plain memory: no class's code makes that.
        return _view(found, memory.whole(root), start)
    if root is not found:
        return _view(found, root, start)
    layout = found.dtype, found.shape, found.strides, writeable
    if pieces.is_large(found):
        return rebuild.large, (large(found), *layout)
    return rebuild.array, (_raw(found), *layout)


def _view(found: Any, root: Any, start: int) -> Any:
    kind = type(found)
    offset = address(found) - start
    made = root, kind, found.dtype, found.shape, found.strides, offset, found.flags.writeable
    if kind is _plain() or not hasattr(found, "__dict__"):
        return rebuild.view, made
    return rebuild.view, made, (found.__dict__,), None, None, rebuild.fill_array


def _reduce_objects(memory: Memory, found: Any) -> Any:
    np = library("numpy")
    kind = type(found)
    root, exporter = memory.owner(found)
    if exporter is not None or not root.flags.forc:
        raise RefusedError("an array of objects over memory of something else", found)
    space = found.__dict__ if kind is not np.ndarray and hasattr(found, "__dict__") else None
    start, end = _bounds(root)
    memory.owns(root, start, end)
    if root is found:
        order = "F" if found.flags.f_contiguous and not found.flags.c_contiguous else "C"
        items = found.view(np.ndarray).ravel(order="K").tolist()
        state = (items, found.flags.writeable, space)
        return rebuild.objects, (kind, found.shape, order), state, None, None, rebuild.fill_objects
    first = (address(found) - start) // found.itemsize
    made = (root, kind, found.shape, found.strides, first, found.flags.writeable)
    rest = () if space is None else ((space,), None, None, rebuild.fill_array)
    return (rebuild.object_view, made, *rest)


def reduce_row(memory: Memory, found: Any) -> Any:
    """Reduce a row of a structured array, which shows the array's memory."""
    np = library("numpy")
    base = found.base
    if not isinstance(base, np.ndarray) or found.dtype.hasobject:
        return NotImplemented
    root, exporter = memory.owner(base)
    if exporter is not None or not root.flags.forc:
        raise RefusedError("a row over memory of something else", found)
    start, end = _bounds(root)
    memory.owns(root, start, end)
    offset = int(found.__array_interface__["data"][0]) - start
    return rebuild.row, (
        root if type(root) is np.ndarray else memory.whole(root),
        found.dtype,
        offset,
    )


def reduce_whole(whole: Whole) -> Any:
    """Reduce the bytes of an array of a class of its own."""
    flat = whole.array.view(_plain()).ravel(order="K").view("u1")
    raw = flat.tobytes() if flat.nbytes < _SMALL else pickle.PickleBuffer(flat)
    return rebuild.array, (raw, flat.dtype, flat.shape, flat.strides, True)


def reduce_in_frame(memory: Memory, framed: InFrame) -> Any:
    """Reduce an array inside a frame: to a copy, or to the array itself where others show it."""
    found = framed.array
    if memory.shown(found):
        return rebuild.same, (found,)
    if found.dtype.hasobject or found.dtype.kind == "T":
        return rebuild.same, (memory.copied(found),)
    if found.flags.writeable:
        memory.owner(found)  # refuses what would write to memory that stays here
    flat = found if found.flags.forc else memory.copied(found)
    return rebuild.array, (_raw(flat), flat.dtype, flat.shape, _steps(flat), found.flags.writeable)


def _steps(flat: Any) -> tuple[int, ...]:
    """Return the strides of an array without gaps; numpy may say others of axes of one element."""
    in_c = flat.flags.c_contiguous
    sizes = flat.shape[::-1] if in_c else flat.shape
    steps = tuple(itertools.accumulate(sizes, operator.mul, initial=flat.itemsize))[: flat.ndim]
    return steps[::-1] if in_c else steps
