"""Makes a staged shipment visible, as a whole and at once.

Owns the assignment of names and of contents of live units; its caller holds back interrupts and
other threads.  Everything was loaded before: what happens here is
assignment only, and what fails all the same is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gpulease.transfer.registry import Registry
from gpulease.transfer.values.kinds.units import apply_content

from .staging import Loaded, LoadError, Staging
from .transplant import keep_objects


def commit(
    staging: Staging,
    ns: dict[str, Any],
    remove: Iterable[str],
    *,
    lasting: Registry,
    may_bind: Callable[[str], bool] = lambda _name: True,
) -> list[str]:
    """Apply every loaded group and drop ``remove``; return the names that were bound.

    A group that a library does not let be put in place (a device without room, say) is moved from
    ``staging.loaded`` to ``staging.failed``, and its names are dropped: what they were bound to may
    hold a part of it.
    """
    bound: list[str] = []
    for index, loaded in list(staging.loaded.items()):
        try:
            _put_in_place(staging, loaded)
            keep_objects(loaded.names, loaded.arrived.lasting, lasting, may_bind)
        except Exception as error:  # noqa: BLE001 - whatever a library makes of being written to
            staging.failed[index] = LoadError(_said(error))
            del staging.loaded[index]
            for name in filter(may_bind, loaded.names):
                ns.pop(name, None)
            continue
        for name, value in loaded.names.items():
            if may_bind(name):
                ns[name] = value
                bound.append(name)
    for name in remove:
        ns.pop(name, None)
    staging.adopt()
    return bound


def _put_in_place(staging: Staging, loaded: Loaded) -> None:
    for oid, content in staging.contents(loaded):
        if oid not in staging.fresh:
            apply_content(staging.units[oid], content, staging.codes.get(oid))
    loaded.apply()


def _said(error: Exception) -> str:
    text = [line[:200] for line in str(error).strip().splitlines()[:1]]
    what = ": ".join([type(error).__name__, *text])
    return f"it was put in place in part only ({what})"
