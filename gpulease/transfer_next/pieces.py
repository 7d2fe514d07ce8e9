"""Large memory of arrays: only the pieces that changed travel, into memory that is there already.

An array that owns such memory has an id that both sides use.  Where the receiver has it, it stays
the object that it is, and its bytes are written; the pickle holds the id alone.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import xxhash

from gpulease.sides.libraries import library

from . import rebuild
from .classes import Undo

PIECE = 4 << 20
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
        and found.nbytes > rebuild.COPIED_BYTES
        and not found.dtype.hasobject
        and found.flags.forc
        and (found.base is None or type(found.base) is rebuild.OwnedBytes)
    )


def flat(found: Any) -> Any:
    """Return the bytes of an array in memory's order."""
    return found.ravel(order="K").view("u1")


def digests(found: Any) -> bytes:
    """Return the digests of how an array lies in its memory, and of each piece of that."""
    raw = memoryview(flat(found))
    layout = repr((found.dtype, found.shape, found.strides)).encode()
    starts = range(0, len(raw), PIECE)
    parts: list[bytes | memoryview] = [layout, *(raw[start : start + PIECE] for start in starts)]
    return b"".join(map(xxhash.xxh3_128_digest, parts))


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
    """Return these pieces of an array's memory, without a copy."""
    raw = memoryview(flat(found))
    return [raw[number * PIECE : (number + 1) * PIECE] for number in numbers]


def same_layout(found: Any, dtype: Any, shape: Any, strides: Any) -> bool:
    """Say whether an array that is here can be the one that comes."""
    return (
        type(found) is library("numpy").ndarray
        and (found.dtype, found.shape, found.strides) == (dtype, shape, strides)
        and is_large(found)
    )


def write(found: Any, numbers: Sequence[int], parts: Sequence[Any],
          undo: Undo | None = None) -> None:  # fmt: skip
    """Write pieces into an array that is here, or that is new: then there is nothing to undo."""
    if undo is not None and not found.flags.writeable:
        undo.add(lambda: found.setflags(write=False))
        found.setflags(write=True)
    raw = memoryview(flat(found))
    for number, part in zip(numbers, parts, strict=True):
        place = raw[number * PIECE : (number + 1) * PIECE]
        if undo is not None and type(part) is bytearray:
            _swap(place, part)  # it is ours alone, and keeps what was here: no further copy
            undo.add(partial(_swap, place, part))
            continue
        if undo is not None:
            undo.add(partial(operator.setitem, place, slice(None), bytes(place)))
        place[:] = memoryview(part).cast("B")


def _swap(one: memoryview, other: bytearray) -> None:
    for start in range(0, len(one), _STEP):
        at = slice(start, start + _STEP)
        one[at], other[at] = other[at], bytes(one[at])


def new(size: int, dtype: Any, shape: Any, strides: Any) -> Any:
    """Return an array with memory of its own."""
    np = library("numpy")
    for order in "CF":
        made = np.empty(shape, dtype, order=order)
        if made.strides == strides:
            return made
    return np.ndarray(shape, dtype, buffer=rebuild.OwnedBytes(size), strides=strides)
