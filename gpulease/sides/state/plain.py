"""Plain values as bytes: numbers, text, and the containers of Python's own that hold only these."""

from __future__ import annotations

import io
import pickle
from typing import Any

SCALARS = frozenset({type(None), bool, int, float, complex, str, bytes})
_CONTAINERS = (list, tuple, set, frozenset, dict)
#: Values in one attribute, and how deep they may be nested; what has more is not plain.
_MOST = 10_000
_DEEPEST = 20
_BYTES = 1 << 20


def plain_bytes(value: Any) -> bytes | None:
    """Return the same bytes for equal plain values, None for all others, and for those too large.

    A container that is there twice becomes two.
    """
    if _count(value, 0) > _MOST:
        return None
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5)
    pickler.fast = True  # no memory of what came before: equal values give equal bytes
    pickler.dump(value)
    return out.getvalue() if out.tell() <= _BYTES else None


def _count(value: Any, depth: int) -> int:
    """Return how many values there are in one, ``_MOST + 1`` where it is not plain."""
    kind = type(value)
    if kind in SCALARS:
        return 1
    if kind not in _CONTAINERS or depth > _DEEPEST or len(value) > _MOST:
        return _MOST + 1
    found = 1
    for part in (*value.keys(), *value.values()) if kind is dict else value:
        found += _count(part, depth + 1)
        if found > _MOST:
            break
    return found


def is_container(value: Any) -> bool:
    """Say whether something may be filled anew and stay the object that it is."""
    return type(value) in (list, set, dict)


def write_in_place(old: Any, new: Any) -> bool:
    """Give a list, set or dict the items of another; False where these are no two of one kind."""
    if type(old) is not type(new) or not is_container(new):
        return False
    if type(new) is list:
        old[:] = new
    else:
        old.clear()
        old.update(new)
    return True
