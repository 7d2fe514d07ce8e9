"""Large memory: only the pieces that changed travel, into memory that is there already.

The owner of such memory, an array or a library's object, has the same id on both sides.
Where the receiver has it, it stays the object that it is, and its bytes are written; the pickle
holds the id alone.  No more than a piece is copied to find out what changed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import xxhash

from gpulease.sides.libraries import library

from . import rebuild
from .classes import Undo

PIECE = 4 << 20
#: Memory of more bytes is large.
LARGE = 64 << 10
_DIGEST = 16
_STEP = 64 << 10


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
        and (found.base is None or type(found.base) is rebuild.OwnedBytes)
    )


def flat(found: Any) -> Any:
    """Return the bytes of an array in memory's order."""
    return found.ravel(order="K").view("u1")


class Way(NamedTuple):
    """How the bytes of a kind of object are reached."""

    size: Callable[[Any], int]
    #: How it lies in its memory, in words: that of other words is other memory.
    layout: Callable[[Any], str]
    #: Returns a buffer of the bytes from one place to another; a copy only where it has to be.
    read: Callable[[Any, int, int], Any]
    #: Writes bytes from a place on; what was there comes back where it is undone.
    write: Callable[[Any, int, Any, Undo | None], None]


def _read(found: Any, start: int, stop: int) -> memoryview:
    return memoryview(flat(found))[start:stop]


def _write(found: Any, start: int, part: Any, undo: Undo | None) -> None:
    if undo is not None and not found.flags.writeable:
        undo.add(lambda: found.setflags(write=False))
        found.setflags(write=True)
    place = memoryview(flat(found))[start : start + memoryview(part).nbytes]
    if undo is not None and type(part) is bytearray:
        _swap(place, part)  # it is ours alone, and keeps what was here: no further copy
        undo.add(partial(_swap, place, part))
        return
    if undo is not None:
        undo.add(partial(operator.setitem, place, slice(None), bytes(place)))
    place[:] = memoryview(part).cast("B")


_ARRAYS = Way(
    lambda found: int(found.nbytes),
    lambda found: repr((found.dtype, found.shape, found.strides)),
    _read,
    _write,
)
_ways: dict[type, Way] = {}


def enter(kind: type, way: Way) -> None:
    """Enter how the bytes of a library's objects are reached."""
    _ways[kind] = way


def _way(found: Any) -> Way:
    return _ways.get(type(found), _ARRAYS)


def size(found: Any) -> int:
    """Return how many bytes large memory has."""
    return _way(found).size(found)


def digests(found: Any) -> bytes:
    """Return the digests of how something lies in its memory, and of each piece of that."""
    way = _way(found)
    starts = range(0, way.size(found), PIECE)
    parts = (way.read(found, start, start + PIECE) for start in starts)
    return b"".join(map(xxhash.xxh3_128_digest, chain([way.layout(found).encode()], parts)))


def changed(now: bytes, before: bytes | None) -> tuple[int, ...]:
    """Return the numbers of the pieces that are not as they were; all where they are others."""
    places = [slice(start, start + _DIGEST) for start in range(0, len(now), _DIGEST)]
    same_layout = before is not None and now[places[0]] == before[places[0]]
    return tuple(
        number
        for number, at in enumerate(places[1:])
        if before is None or not same_layout or now[at] != before[at]
    )


def cut(found: Any, numbers: Sequence[int]) -> list[Any]:
    """Return these pieces of large memory."""
    read = _way(found).read
    return [read(found, number * PIECE, (number + 1) * PIECE) for number in numbers]


def same_layout(found: Any, dtype: Any, shape: Any, strides: Any) -> bool:
    """Say whether an array that is here can be the one that comes."""
    return (
        type(found) is library("numpy").ndarray
        and (found.dtype, found.shape, found.strides) == (dtype, shape, strides)
        and is_large(found)
    )


def write(found: Any, numbers: Sequence[int], parts: Sequence[Any],
          undo: Undo | None = None) -> None:  # fmt: skip
    """Write pieces into memory that is here, or that is new: then there is nothing to undo."""
    way = _way(found)
    for number, part in zip(numbers, parts, strict=True):
        way.write(found, number * PIECE, part, undo)


def _swap(one: memoryview, other: bytearray) -> None:
    for start in range(0, len(one), _STEP):
        at = slice(start, start + _STEP)
        one[at], other[at] = other[at], bytes(one[at])


def new(nbytes: int, dtype: Any, shape: Any, strides: Any) -> Any:
    """Return an array with memory of its own."""
    np = library("numpy")
    for order in "CF":
        made = np.empty(shape, dtype, order=order)
        if made.strides == strides:
            return made
    return np.ndarray(shape, dtype, buffer=rebuild.OwnedBytes(nbytes), strides=strides)


#: Buffers are hashed in chunks of this many bytes: what both sides hold of one need not travel, and
#: a pass can be given up between two.
CHUNK = 2**20


def buffer_digest(buffer: memoryview, check: Callable[[], None] | None = None) -> bytes:
    """Return the 16 byte digest of what a buffer holds; ``check`` may raise to give up."""
    state = xxhash.xxh3_128()
    buffer = buffer if buffer.c_contiguous else memoryview(buffer.tobytes())
    buffer = buffer.cast("B") if buffer.nbytes else memoryview(b"")
    for start in range(0, len(buffer), CHUNK):
        if check is not None:
            check()
        state.update(buffer[start : start + CHUNK])
    return state.digest()


def combine(parts: Iterable[bytes]) -> bytes:
    """Return one digest for a sequence of byte strings; their lengths are part of it."""
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()
