"""SymPy: expressions by what they are made of.

What SymPy found out about one (whether it is positive, say) it keeps with it, in a dictionary that
others of its kind may have too, and adds to it when the expression is only looked at.  That is no
part of its value: two sides that look at one do not change it.
"""

from __future__ import annotations

from typing import Any

from sympy.core.basic import Basic

from .base import Aside, Inside, Packing


class _Sympy(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return issubclass(kind, Basic)

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        try:
            _, *parts = _reduced(obj)
        except Exception:  # noqa: BLE001 - it says so again when it is to be pickled
            return Inside(list(obj.args))
        return Inside([part for part in parts if part is not None])

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return _reduced(obj)


def _reduced(obj: Any) -> Any:
    """Reduce an expression; one of a notebook's class with the attributes that it was given."""
    reduced = obj.__reduce_ex__(5)
    given = getattr(obj, "__dict__", None) if type(obj).__module__ == "__main__" else None
    if given and isinstance(reduced, tuple) and not any(reduced[2:]):
        return (*reduced[:2], dict(given))
    return reduced


FRAMEWORK = _Sympy()
