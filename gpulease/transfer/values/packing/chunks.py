"""Chunks of large values that the receiver has: they are named by their content, and do not travel.

Owns which chunks of a buffer are sent, and how the buffer is put together again from these and
from what is there of an older value.  What is there is read again first: nothing is believed of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpulease.transfer.values.groups import names_of
from gpulease.transfer.values.landing.staging import Arrived
from gpulease.transfer_next.hashing import CHUNK, chunk_digests, split
from gpulease.wire.memory import fresh

from .pickling import Packed

#: First and one past the last of the chunks that follow each other.
Run = tuple[int, int]

#: The receiver reads all of its older value: below this many bytes, or this part of the value, to
#: send it again is quicker.
_WORTH = 4 * 2**20
_WORTH_PART = 1 / 4


def runs_to_send(
    packed: Packed, held: Collection[int], known: Collection[bytes]
) -> dict[int, tuple[Run, ...]]:
    """Return what to send of each buffer of which the receiver has most: the other chunks.

    ``held`` are indices of buffers that do not travel at all, ``known`` digests of chunks that the
    receiver has.
    """
    if not known:
        return {}
    found: dict[int, tuple[Run, ...]] = {}
    saved = whole = 0
    for index, buffer in enumerate(packed.buffers):
        if index in held:
            continue
        whole += buffer.nbytes
        there = [digest in known for digest in split(packed.chunks[index])]
        if 2 * sum(there) >= len(there):  # of the rest a second copy is made in memory
            found[index] = _runs(there)
            saved += buffer.nbytes - sent_bytes(found[index], buffer.nbytes)
    return found if saved >= max(_WORTH, whole * _WORTH_PART) else {}


def _runs(there: Sequence[bool]) -> tuple[Run, ...]:
    runs: list[Run] = []
    for index, known in enumerate(there):
        if known:
            continue
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return tuple(runs)


def sent_bytes(runs: Iterable[Run], nbytes: int) -> int:
    """Return how many of a buffer's bytes are in these chunks of it."""
    return sum(min(last * CHUNK, nbytes) - first * CHUNK for first, last in runs)


@dataclass
class Partial:
    """A buffer of ``nbytes`` bytes of which only these runs came, a blob for each."""

    nbytes: int
    digests: list[bytes]
    runs: list[Run]
    blobs: list[Any]

    def whole(self, there: Mapping[bytes, memoryview]) -> bytearray | None:
        """Return all of it, or None where a chunk is nowhere."""
        made = fresh(self.nbytes)
        came: set[int] = set()
        for (first, last), blob in zip(self.runs, self.blobs, strict=True):
            made[first * CHUNK : first * CHUNK + len(blob)] = blob
            came.update(range(first, last))
        with memoryview(made) as view:
            for index, digest in enumerate(self.digests):
                if index in came:
                    continue
                chunk = there.get(digest)
                if chunk is None or chunk.nbytes != len(view[index * CHUNK :][:CHUNK]):
                    return None
                view[index * CHUNK : index * CHUNK + chunk.nbytes] = chunk
        return made


def complete(
    groups: Iterable[Arrived],
    older: Callable[[Collection[str]], Iterable[Packed]],
    *,
    written: Callable[[], bool],
) -> tuple[str, ...]:
    """Make all buffers whole; return the roots of groups of which a chunk is not here any more.

    ``older`` packs what is here of some names, ``written`` says whether somebody may have written
    to that meanwhile.
    """
    partial = [g for g in groups if any(isinstance(b, Partial) for b in g.buffers)]
    if not partial:
        return ()
    there: dict[bytes, memoryview] = {}
    for packed in older({name for group in partial for name in names_of(group.roots)}):
        for buffer, digests in zip(packed.buffers, packed.chunks, strict=True):
            for index, digest in enumerate(split(digests)):
                there.setdefault(digest, buffer[index * CHUNK : (index + 1) * CHUNK])
    missed: list[str] = []
    for group in partial:
        for index, buffer in enumerate(group.buffers):
            if not isinstance(buffer, Partial):
                continue
            made = buffer.whole(there)
            if made is not None and written() and not _is(made, buffer.digests):
                made = None
            if made is None:
                missed += group.roots
                break
            group.buffers[index] = made
    return tuple(missed)


def _is(made: bytearray, digests: list[bytes]) -> bool:
    with memoryview(made) as view:
        return chunk_digests(view) == b"".join(digests)
