"""Content digests: xxh3_128 over what a group pickles to.

A digest of a group says "unchanged" only against an earlier digest of the same objects made by the
same process: pickled bytes differ between two processes for equal values, so these are never
compared across sides.  Digests of chunks are: they are of memory alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import xxhash

#: Buffers are hashed in chunks of this many bytes: what both sides hold of one need not travel, and
#: a pass can be given up between two.
CHUNK = 2**20
DIGEST = 16  # bytes


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


def chunk_digests(buffer: memoryview, check: Callable[[], None] | None = None) -> bytes:
    """Return the digests of a buffer's chunks, one after the other; see ``buffer_digest``."""
    found = bytearray()
    for start in range(0, buffer.nbytes, CHUNK):
        if check is not None:
            check()
        found += xxhash.xxh3_128_digest(buffer[start : start + CHUNK])
    return bytes(found)


def of_chunks(digests: bytes) -> bytes:
    """Return the one digest of what has these ``chunk_digests``."""
    return digests if len(digests) == DIGEST else combine([digests])


def split(digests: bytes) -> list[bytes]:
    """Return the digests of chunks one by one."""
    return [digests[at : at + DIGEST] for at in range(0, len(digests), DIGEST)]


def combine(parts: Iterable[bytes]) -> bytes:
    """Return one digest for a sequence of byte strings; their lengths are part of it."""
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()
