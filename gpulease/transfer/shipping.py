"""A parcel as the wire's blobs, and how one side takes what it can of it."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Sequence
from typing import Any

from .api import Absent, Parcel, StageError
from .side import Side

_NOT_LOADED = "it does not load on the other side"


def encode(parcel: Parcel, state: bytes) -> tuple[dict[str, Any], list[Any]]:
    """Return what ``pieces.memory_for`` is to be told, and blobs.

    These are the process's state, the parcel, and the memory of its values as it is.
    """
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(parcel, protocol=5, buffer_callback=buffers.append)
    forms = {
        id(each.buffers[place]): form
        for each in parcel.components
        for place, form in each.forms.items()
    }
    blobs = [state, head, *(buffer.raw() for buffer in buffers)]
    told = enumerate(map(forms.get, map(id, buffers)), start=2)
    return {"forms": [[blob, *form] for blob, form in told if form is not None]}, blobs


def decode(blobs: Sequence[Any]) -> tuple[Parcel, bytes]:
    """Return what ``encode`` got."""
    return pickle.loads(blobs[1], buffers=blobs[2:]), bytes(blobs[0])


def size(blobs: Sequence[Any]) -> int:
    """Return how many bytes travel."""
    return sum(memoryview(blob).nbytes for blob in blobs)


def take(side: Side, parcel: Parcel) -> set[str]:
    """Commit a parcel, less the components that do not load here; return the roots of those."""
    untaken: set[str] = set()
    while True:
        try:
            side.commit(side.stage(parcel))
        except StageError as error:
            left = leave_out(parcel, error.roots, str(error) or _NOT_LOADED)
            if not left:
                raise
            untaken |= left
        else:
            return untaken


def leave_out(parcel: Parcel, roots: Collection[str], why: str) -> set[str]:
    """Take components and classes out of a parcel: they stay where they are.

    Return the roots of those that there were.
    """
    wanted = set(roots)
    shells = [shell for shell in parcel.shells if "c:" + shell[0] in wanted]
    for shell in shells:
        parcel.shells.remove(shell)
    keys = with_their_classes(parcel, wanted, {oid for oid, _ in shells})
    found = [each for each in parcel.components if wanted.intersection(each.roots)]
    wanted.update(root for each in found for root in each.roots)
    for component in found:
        parcel.components.remove(component)
    names = {name for component in found for name in component.names}
    names |= {root[2:] for key in keys for root in key if root[0] == "n"}
    parcel.away.update({name: Absent(why, can_come=False) for name in names})
    forget(parcel, wanted)
    return wanted if shells or found else set()


def with_their_classes(
    parcel: Parcel, wanted: set[str], lost: Collection[str] = ()
) -> list[frozenset[str]]:
    """Add to ``wanted`` the roots of what refers to a class that stays; return their keys."""
    lost = set(lost)
    keys: list[frozenset[str]] = []
    while True:
        lost |= {root[2:] for root in wanted if root[0] == "c"}
        more = [
            key
            for key, classes in parcel.classes.items()
            if not key <= wanted and (lost & classes or wanted & key)
        ]
        if not more:
            return keys
        keys += more
        wanted.update(*more)


def forget(parcel: Parcel, roots: Collection[str]) -> None:
    """Let a parcel that was packed here agree on nothing about these roots."""
    for key in [key for key in parcel.digests if not key.isdisjoint(roots)]:
        del parcel.digests[key]
    parcel.shells = [shell for shell in parcel.shells if "c:" + shell[0] not in roots]
