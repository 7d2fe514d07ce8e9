"""Marks of what modules hold: whether it was rebound or refilled, and alike on both sides."""

from __future__ import annotations

import hashlib
import uuid
from types import BuiltinFunctionType, FunctionType
from typing import Any

from gpulease.sides import module_files
from gpulease.sides.state.deep_marks import Deep
from gpulease.sides.state.plain import plain_bytes

#: A container of more items is one value.
_MOST = 5_000
CODE = frozenset({FunctionType, BuiltinFunctionType, type})
_BY_VALUE = frozenset({bool, int, str, bytes})
#: Flags of a type whose objects are dicts, lists (``Include/object.h`` of CPython).
_IS_DICT, _IS_LIST = 1 << 29, 1 << 25


def is_code(value: Any) -> bool:
    """Say whether something is a function or a class."""
    return type(value) in CODE or issubclass(type(value), type)


def is_notebooks(value: Any, depth: int = 2) -> bool:
    """Say whether something is made of what the notebook, or the person's module, defines."""
    made = value if is_code(value) else type(value)
    module = made.__module__
    if module == "__main__" or (type(module) is str and module_files.module_digest(module)):
        return True
    items = [value] if type(value) is tuple else items_of(value) if depth else None
    return any(is_notebooks(each, depth - 1) for item in items or () for each in item)


def items_of(value: Any) -> list[tuple[Any, ...]] | None:
    """Return the items of a list, set or dict, None of all else and of what has too many."""
    if type(value).__flags__ & _IS_DICT:
        return list(dict.items(value)) if dict.__len__(value) <= _MOST else None
    kind = list if type(value).__flags__ & _IS_LIST else set
    if (kind is set and type(value) is not set) or kind.__len__(value) > _MOST:
        return None
    return [(each,) for each in kind.__iter__(value)]


def mark(value: Any) -> Any:
    """Return what tells, for as long as one cell runs, whether this was bound or filled anew."""
    kind = type(value)
    if kind in _BY_VALUE:
        return value
    holds = kind is set or kind.__flags__ & (_IS_DICT | _IS_LIST)
    if holds and (items := items_of(value)) is not None:
        return id(value), [tuple(map(id, item)) for item in items]
    return id(value)


def news_of(value: Any, had: Any) -> frozenset[str]:
    """Return what is new of a value that had this mark, alike wherever it was made alike.

    Of a list, set or dict that was there it is what came into it: what libraries keep there beside
    that is not the same on both sides.
    """
    if type(had) is Deep:
        if had.number == id(value) and had.shallow == mark(value):
            return frozenset({uuid.uuid4().hex})  # no two sides change it alike, as far as is known
        had = had.shallow
    items = items_of(value)
    if items is None or type(had) is not tuple or had[0] != id(value):
        return frozenset({_content(value)})
    known = {*had[1]}
    return frozenset(_content(item) for item in items if tuple(map(id, item)) not in known)


def _content(value: Any, depth: int = 3) -> str:
    if (data := plain_bytes(value)) is not None:
        return hashlib.sha256(data).hexdigest()
    if issubclass(type(value), FunctionType | BuiltinFunctionType | type):
        return f"{value.__module__}.{value.__qualname__}"
    items = [value] if type(value) is tuple else items_of(value)
    if depth and items is not None:
        return repr(sorted(_content(each, depth - 1) for item in items for each in item))
    return f"{type(value).__module__}.{type(value).__qualname__}"
