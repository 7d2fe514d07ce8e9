"""Looks at values that may answer as they like: no look may ever raise into a cell."""

from __future__ import annotations

import types
from typing import Any

_NAME_OF_TYPE: Any = type.__dict__["__name__"].__get__


def name_of_type(kind: type) -> str:
    """Return a class's name without asking its metaclass."""
    name: str = _NAME_OF_TYPE(kind)
    return name


def is_a(value: Any, kinds: type | types.UnionType | tuple[type, ...]) -> bool:
    """Return what ``isinstance`` does, by what the value is and not by what it says it is."""
    return issubclass(type(value), kinds)


def ask(value: Any, name: str) -> Any:
    """Return an attribute of a value, None where it has none or raises when asked."""
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 - a value may raise anything
        return None
