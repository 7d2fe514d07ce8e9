"""Content digests: xxh3_128 over what a group pickles to.

Owns how bytes become a digest.  A digest says "unchanged" only against an earlier digest of the
same objects made by the same process: pickled bytes differ between two processes for equal
values, so digests are never compared across sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import xxhash

#: Buffers are hashed in pieces of this many bytes, so that a pass can be given up between them.
CHUNK = 4 * 2**20


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
