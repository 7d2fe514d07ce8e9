"""Empty classes for what the other side may lack of those that components refer to."""

from __future__ import annotations

import io
from collections.abc import Collection

from . import classes
from .pickler import Met, Pickler
from .tables import Counterparts


def of(oids: Collection[str], bound: Counterparts, met: Met) -> list[tuple[str, bytes]]:
    """Return the shells of these classes, bases first: the other side may have lost them."""
    out: dict[str, bytes] = {}
    for oid in sorted(oids):
        _put(oid, bound, met, out)
    return list(out.items())


def _put(oid: str, bound: Counterparts, met: Met, out: dict[str, bytes]) -> None:
    if oid in out:
        return
    cls = bound.get(oid)
    for base in (type(cls), *cls.__bases__):
        known = bound.find(base)
        if known is not None:
            _put(known, bound, met, out)
    file = io.BytesIO()
    Pickler(file, [], met).dump(classes.shell_of(cls))
    out[oid] = file.getvalue()
