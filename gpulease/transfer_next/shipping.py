"""A parcel as the wire's blobs, and how one side takes what it can of it."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Sequence
from typing import Any

from .engine import Away, Engine, Parcel, StageError

_NOT_LOADED = "it does not load on the other side"


def encode(parcel: Parcel, state: bytes) -> list[Any]:
    """Return blobs: the process's state, the parcel, and the memory of its values as it is."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(parcel, protocol=5, buffer_callback=buffers.append)
    return [state, head, *(buffer.raw() for buffer in buffers)]


def decode(blobs: Sequence[Any]) -> tuple[Parcel, bytes]:
    """Return what ``encode`` got."""
    return pickle.loads(blobs[1], buffers=blobs[2:]), bytes(blobs[0])


def size(blobs: Sequence[Any]) -> int:
    """Return how many bytes travel."""
    return sum(memoryview(blob).nbytes for blob in blobs)


def take(side: Engine, parcel: Parcel) -> set[str]:
    """Commit a parcel, less the components that do not load here; return the roots of those."""
    untaken: set[str] = set()
    while True:
        try:
            side.commit(side.stage(parcel))
        except StageError as error:
            if not error.roots:
                raise
            leave_out(parcel, error.roots, str(error) or _NOT_LOADED)
            untaken |= error.roots
        else:
            return untaken


def leave_out(parcel: Parcel, roots: Collection[str], why: str) -> None:
    """Take a component out of a parcel: what is in it stays where it is."""
    wanted = set(roots)
    for component in [each for each in parcel.components if wanted.intersection(each.roots)]:
        parcel.components.remove(component)
        parcel.away.update({name: Away(why, can_come=False) for name in component.names})
    forget(parcel, wanted)


def forget(parcel: Parcel, roots: Collection[str]) -> None:
    """Let a parcel that was packed here agree on nothing about these roots."""
    for key in [key for key in parcel.digests if not key.isdisjoint(roots)]:
        del parcel.digests[key]
