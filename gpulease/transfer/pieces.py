"""Large memory: only the pieces that changed travel, into memory that is there already.

The owner of such memory, an array or a library's object, has the same id on both sides.
Where the receiver has it, it stays the object that it is, and its bytes are written; the pickle
holds the id alone.  Where not, they are received into the memory of the object that is made.  No
more than a few pieces are copied to find out what changed.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import xxhash

from gpulease.sides.libraries import library
from gpulease.wire.memory import OwnedBytes, fresh

from .classes import Undo

log = logging.getLogger(__name__)

PIECE = 4 << 20
#: Memory of more bytes is large.
LARGE = 64 << 10
_DIGEST = 16
#: So many pieces are worth two threads, and are read before the next ones are.
_MANY = 8
_STEP = 64 << 10


#: What new memory is to be, in JSON: the library, and what that says of it.
Form = Sequence[Any]


class Bytes:
    """Stands for the bytes of a large array that is filled in place."""

    __slots__ = ("array",)

    def __init__(self, found: Any) -> None:
        self.array = found


def is_large(found: Any) -> bool:
    """Say whether an array owns memory that travels in pieces."""
    np = library("numpy")
    return (
        type(found) is np.ndarray
        and found.nbytes > LARGE
        and not found.dtype.hasobject
        and found.flags.forc
        and (found.base is None or type(found.base) is OwnedBytes)
    )


def flat(found: Any) -> Any:
    """Return the bytes of an array in memory's order."""
    return found.ravel(order="K").view("u1")


class Way(NamedTuple):
    """How the bytes of a library's kind of object are reached."""

    library: str
    size: Callable[[Any], int]
    #: How it lies in its memory, in words: that of other words is other memory.
    layout: Callable[[Any], str]
    #: Returns a buffer of the bytes from one place to another; a copy only where it has to be.  No
    #: memoryview: the collector may end the process where one that is in use is in a cycle.
    read: Callable[[Any, int, int], Any]
    #: Writes bytes from a place on; what was there comes back where it is undone.
    write: Callable[[Any, int, Any, Undo | None], None]
    #: Says in JSON what new memory like this one is to be; None where its bytes are enough.
    form: Callable[[Any], Sequence[Any] | None]
    #: Returns an object with so many bytes of such memory, whose content is undefined.
    empty: Callable[..., Any]
    #: Returns the object that has the memory of what ``read`` gave, None for any other.
    owner: Callable[[Any], Any]


def _read(found: Any, start: int, stop: int) -> Any:
    return flat(found)[start:stop]


def _write(found: Any, start: int, part: Any, undo: Undo | None) -> None:
    if undo is not None and not found.flags.writeable:
        undo.add(lambda: found.setflags(write=False))
        found.setflags(write=True)
    place = memoryview(flat(found))[start : start + memoryview(part).nbytes]
    if undo is not None and isinstance(part, bytearray):
        _swap(place, part)  # it is ours alone, and keeps what was here: no further copy
        undo.add(partial(_swap, place, part))
        return
    if undo is not None:
        undo.add(partial(operator.setitem, place, slice(None), bytes(place)))
    place[:] = memoryview(part).cast("B")


def _form(found: Any) -> Sequence[Any] | None:
    kind = found.dtype
    if found.base is not None or kind.metadata or library("numpy").dtype(kind.str) != kind:
        return None
    return kind.str, found.shape, "C" if found.flags.c_contiguous else "F"


def _empty(_size: int, dtype: str, shape: list[int], order: Any) -> Any:
    return library("numpy").empty(shape, dtype, order=order)


_ARRAYS = Way(
    "numpy",
    lambda found: int(found.nbytes),
    lambda found: repr((found.dtype, found.shape, found.strides)),
    _read,
    _write,
    _form,
    _empty,
    lambda part: getattr(part, "base", None),
)
_ways: dict[type, Way] = {}
_libraries = {_ARRAYS.library: _ARRAYS}


def enter(kind: type, way: Way) -> None:
    """Enter how the bytes of a library's objects are reached."""
    _ways[kind] = _libraries[way.library] = way


def _way(found: Any) -> Way:
    return _ways.get(type(found), _ARRAYS)


def size(found: Any) -> int:
    """Return how many bytes large memory has."""
    return _way(found).size(found)


def digests(found: Any) -> bytes:
    """Return the digests of how something lies in its memory, and of each piece of that."""
    way = _way(found)
    size, layout = way.size(found), xxhash.xxh3_128_digest(way.layout(found).encode())
    return layout + _hashed(partial(way.read, found), size)


def _hashed(read: Callable[[int, int], Any], size: int) -> bytes:
    """Return the digests of all pieces; of many pieces two are hashed at a time."""
    parts = (read(start, start + PIECE) for start in range(0, size, PIECE))
    if size < _MANY * PIECE:
        return b"".join(map(xxhash.xxh3_128_digest, parts))
    found: list[bytes] = []
    with ThreadPoolExecutor(2, "gpulease-hash") as pool:
        while some := list(islice(parts, _MANY)):  # a copy of each, where it is a device's
            found += pool.map(xxhash.xxh3_128_digest, some)
    return b"".join(found)


#: Pieces that follow each other: the first number, and the one after the last.
Run = tuple[int, int]


def every(size: int) -> tuple[Run, ...]:
    """Return all pieces of so many bytes."""
    return ((0, -(-size // PIECE)),)


def changed(now: bytes, before: bytes | None) -> tuple[Run, ...]:
    """Return the pieces that are not as they were; all where they are others."""
    count = len(now) // _DIGEST
    if before is None or now[:_DIGEST] != before[:_DIGEST]:
        return every((count - 1) * PIECE)
    runs: list[Run] = []
    for number in range(count - 1):
        at = slice((number + 1) * _DIGEST, (number + 2) * _DIGEST)
        if now[at] != before[at]:
            begun = runs.pop()[0] if runs and runs[-1][1] == number else number
            runs.append((begun, number + 1))
    return tuple(runs)


def cut(found: Any, runs: Sequence[Run]) -> list[Any]:
    """Return these pieces of large memory, a buffer for each run."""
    read = _way(found).read
    return [read(found, first * PIECE, end * PIECE) for first, end in runs]


def form(found: Any) -> Form | None:
    """Return what memory the other side is to receive large memory into; None for any."""
    way = _way(found)
    said = way.form(found) if way.size(found) >= PIECE else None
    return None if said is None else (way.library, *said)


def memory_for(body: Mapping[str, Any], sizes: Sequence[int]) -> list[Any]:
    """Return memory for the blobs of a message, of what is made of them where its body says so."""
    forms = {blob: said for blob, *said in body.get("forms", ())}
    return [_place(forms.get(blob, ("",)), size) for blob, size in enumerate(sizes)]


def _place(said: Form, size: int) -> Any:
    if (way := _libraries.get(said[0])) is None or library(said[0]) is None:
        return fresh(size)
    try:
        made = way.empty(size, *said[1:])
        return way.read(made, 0, size) if way.size(made) == size else fresh(size)
    except Exception as error:  # noqa: BLE001 - whatever a library says: plain bytes may still do
        log.info("no memory as %s for %d bytes: %s", said[0], size, error)
        return fresh(size)


def placed(part: Any, name: str) -> Any:
    """Return the library's object into whose memory a part was received, None if there is none."""
    return _libraries[name].owner(getattr(part, "obj", part))  # a read-only one comes as a view


def same_layout(found: Any, dtype: Any, shape: Any, strides: Any) -> bool:
    """Say whether an array that is here can be the one that comes."""
    return (
        type(found) is library("numpy").ndarray
        and (found.dtype, found.shape, found.strides) == (dtype, shape, strides)
        and is_large(found)
    )


def write(found: Any, runs: Sequence[Run], parts: Sequence[Any],
          undo: Undo | None = None) -> None:  # fmt: skip
    """Write pieces into memory that is here, or that is new: then there is nothing to undo."""
    way = _way(found)
    for (first, _), part in zip(runs, parts, strict=True):
        way.write(found, first * PIECE, part, undo)


def _swap(one: memoryview, other: bytearray) -> None:
    for start in range(0, len(one), _STEP):
        at = slice(start, start + _STEP)
        one[at], other[at] = other[at], bytes(one[at])


def new(part: Any, dtype: Any, shape: Any, strides: Any) -> Any:
    """Return the array into which all of it was received, or a new one with memory of its own."""
    np = library("numpy")
    if same_layout(made := placed(part, "numpy"), dtype, shape, strides):
        made.setflags(write=True)  # where it was loaded before, and had to be given up
        return made
    for order in "CF":
        made = np.empty(shape, dtype, order=order)
        if made.strides == strides:
            break
    else:
        own = OwnedBytes(memoryview(part).nbytes)
        made = np.ndarray(shape, dtype, buffer=own, strides=strides)
    write(made, every(made.nbytes), [part])
    return made


def buffer_digest(buffer: memoryview) -> bytes:
    """Return the 16 byte digest of what a buffer holds."""
    in_order = buffer.nbytes and buffer.c_contiguous
    flat = buffer.cast("B") if in_order else memoryview(buffer.tobytes())
    return xxhash.xxh3_128_digest(_hashed(lambda start, stop: flat[start:stop], flat.nbytes))


def combine(parts: Iterable[bytes]) -> bytes:
    """Return one digest for a sequence of byte strings; their lengths are part of it."""
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()
