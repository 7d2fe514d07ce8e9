"""What home does not have, in a file that the next companion reads (mode 0600)."""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from pathlib import Path

from gpulease.errors import GPULeaseError
from gpulease.sizes import size_text

from . import shipping
from .engine import Away
from .side import Side


def write(side: Side, path: str, limit: int | None) -> tuple[list[str], dict[str, str]]:
    """Write what the other side lacks; return the names that are in the file, and why not others.

    All that these names need goes with them, because the next reader has nothing.
    """
    changed = {root[2:] for roots in side.changed() for root in roots if root[0] == "n"}
    names = {name for name in changed if not name.startswith("Out[")}
    side.forget_peer()
    parcel = side.pack(names, hand_over=False)
    refused = {n: each.reason for n, each in parcel.away.items() if not each.can_come}
    refused |= {name: f"It is {words}." for name, words in parcel.stays.items()}
    room, kept = limit, []
    for component in list(parcel.components):
        size = len(component.stream) + sum(each.raw().nbytes for each in component.buffers)
        if component.names and refused.keys() >= set(component.names):
            parcel.components.remove(component)
        elif room is not None and component.names and size > room:
            why = f"It has {size_text(size)}; {size_text(max(0, room))} more may be parked."
            refused.update(dict.fromkeys(component.names, why))
            parcel.components.remove(component)
        else:
            room = None if room is None else room - size
            kept += component.names
    target = Path(path)
    if not kept:
        target.unlink(missing_ok=True)  # what lies there is older than what is left out
        return [], refused
    partial = target.with_name(target.name + ".part")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            pickle.dump(parcel, file, protocol=5)
        partial.rename(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        raise
    return kept, refused


def read(side: Side, path: str) -> tuple[dict[str, Away], dict[str, str]]:
    """Take what was parked; return which of it is here now, and why other names are not."""
    try:
        with Path(path).open("rb") as file:
            parcel = pickle.load(file)
    except (OSError, EOFError, pickle.UnpicklingError) as error:
        raise GPULeaseError(
            "parked_unreadable",
            f"The parked variables cannot be read ({type(error).__name__}).",
        ) from error
    finally:
        with suppress(OSError):
            Path(path).unlink()  # read again later it would be an old value
    parcel.away.clear()
    names = {name for component in parcel.components for name in component.names}
    shipping.take(side, parcel)
    failed = {name: each.reason for name, each in parcel.away.items()}
    side.forget_peer()
    found = {
        name: Away("it was parked", True, type(side.ns[name]).__name__)
        for name in names
        if name in side.ns
    }
    return found, failed
