"""Puts a staged parcel in place: all of it, or nothing.

No code of the notebook's is called.  Whatever is written is noted before, so that a failure at any
step leaves this side as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from . import in_place, state
from .classes import Undo
from .engine import StageError
from .loader import Staged


def apply(staged: Staged, namespace: dict[str, Any], hidden: Collection[str],
          pins: Mapping[str, Any]) -> None:  # fmt: skip
    """Write everything; raises after it has taken back what it wrote."""
    undo = staged.undo
    # What is replaced lives until the end: it dies after the commit, not within.
    before = dict(namespace)
    undo.add(lambda: _restore(namespace, before))
    try:
        for pin, content in staged.contents.items():
            if not in_place.fill(pins[pin], content, undo):
                raise StageError(
                    f"a {type(pins[pin]).__name__} that is held here cannot be updated"
                )
        for array in staged.locked:
            array.flags.writeable = False
        _bind(staged, namespace, hidden)
        _set_state(staged.parcel.state, undo)
    except BaseException:
        undo.run()
        raise


def _restore(namespace: dict[str, Any], before: dict[str, Any]) -> None:
    namespace.clear()
    namespace.update(before)


def _set_state(new: dict[str, Any], undo: Undo) -> None:
    before = state.read()
    undo.add(lambda: state.apply(before))
    state.apply(new)


def _bind(staged: Staged, namespace: dict[str, Any], hidden: Collection[str]) -> None:
    parcel = staged.parcel
    names = parcel.names
    if names is not None:
        kept = {*names, *parcel.yours, *hidden} - parcel.away.keys()
        for name in [name for name in namespace if name not in kept]:
            del namespace[name]
    for root, value in staged.values.items():
        if root[0] == "n":
            namespace[root[2:]] = value
    if names is not None:
        here = [name for name in names if name in namespace]
        wanted = set(here)
        if [name for name in namespace if name in wanted] != here:
            for name in here:
                namespace[name] = namespace.pop(name)
