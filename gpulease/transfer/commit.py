"""Puts a staged parcel in place: all of it, or nothing.

No code of the notebook's is called.  Whatever is written is noted before, so that a failure at any
step leaves this side as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import in_place, own, state
from .api import StageError
from .classes import Undo
from .loader import Staged
from .roots import Roots


def apply(staged: Staged, roots: Roots, pins: Mapping[str, Any]) -> None:
    """Write everything; raises after it has taken back what it wrote."""
    undo = staged.undo
    # What is replaced lives until the end: it dies after the commit, not within.
    before = roots.copy()
    undo.add(lambda: roots.restore(before))
    try:
        for pin, content in staged.contents.items():
            if not in_place.fill(pins[pin], content, undo):
                raise StageError(
                    f"the {type(pins[pin]).__name__} in it is held by something that no variable "
                    "leads to, and cannot be given its new shape",
                    [r for each in staged.parcel.components if pin in each.filled
                     for r in each.roots],
                )  # fmt: skip
        for array in staged.locked:
            array.flags.writeable = False
        _bind(staged, roots)
        _set_state(staged.parcel.state, undo)
        for step in staged.later:
            step(undo)
    except BaseException:
        undo.run()
        raise


def _set_state(new: dict[str, Any], undo: Undo) -> None:
    before = state.read()
    undo.add(lambda: state.apply(before))
    state.apply(new)


def _bind(staged: Staged, roots: Roots) -> None:
    parcel = staged.parcel
    if parcel.names is not None:
        sealed = {name for packed, _ in staged.sealed for name in packed.names}
        roots.keep_only({*parcel.names, *parcel.yours} - parcel.away.keys() - sealed)
    values = {root[2:]: value for root, value in staged.values.items() if root[0] == "n"}
    if parcel.names is not None:  # what the sender could not open may hold a name that it deleted
        values = {n: values[n] for n in values.keys() & {*parcel.names, *parcel.yours}}
    roots.bind(values)
    own.put({root: value for root, value in staged.values.items() if root[0] == "m"}, staged.undo)
    if parcel.names is not None:
        roots.sort(parcel.names)
