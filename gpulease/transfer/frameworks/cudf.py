"""cuDF: frames and series travel as pandas', and are that where there is no GPU (see ``host``)."""

from __future__ import annotations

from typing import Any

import cudf

from .base import Aside, Inside, Packing
from .host import frame, sized

_NAMES = ("DataFrame", "Series")


class _CuDF(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return any(kind is getattr(cudf, name) for name in _NAMES)

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside([], sized(obj))

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return frame, (type(obj).__name__, obj.to_pandas())


FRAMEWORK = _CuDF()
