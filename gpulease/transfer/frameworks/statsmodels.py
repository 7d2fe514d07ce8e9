"""statsmodels: the data of a model travel with what their formula became.

Their own way of being pickled leaves that out and evaluates the formula anew where they are loaded,
among the names of whoever loads them: a function of the notebook is not found there, or another is.
"""

from __future__ import annotations

from typing import Any

from statsmodels.base.data import ModelData

from .base import Aside, Inside, Packing, new, set_attributes


class _Statsmodels(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return issubclass(kind, ModelData)

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside(list(vars(obj).values()))

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return new, (type(obj),), dict(vars(obj)), None, None, set_attributes


FRAMEWORK = _Statsmodels()
