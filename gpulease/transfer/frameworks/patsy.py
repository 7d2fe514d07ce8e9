"""patsy: what a formula became travels by its attributes; its classes refuse to be pickled.

A design holds the functions of the notebook that its formula calls, as patsy found them.
"""

from __future__ import annotations

from typing import Any

from .base import Aside, Inside, Packing, new, set_attributes


class _Patsy(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        module = kind.__module__.partition(".")[0]
        return module == "patsy" and not issubclass(kind, type | BaseException | dict)

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside(list(vars(obj).values()))

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        state = dict(vars(obj))
        if hasattr(obj, "__array__"):  # a matrix that knows its columns
            import numpy

            return matrix, (type(obj), numpy.array(obj)), state, None, None, set_attributes
        return new, (type(obj),), state, None, None, set_attributes


def matrix(kind: type, values: Any) -> Any:
    """Return a matrix of this class."""
    return values.view(kind)


FRAMEWORK = _Patsy()
