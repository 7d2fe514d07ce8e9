"""cuDF's frames, series and indexes where there is no GPU: pandas', of classes of their own.

What is computed from one is pandas' own.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from gpulease.transfer.frameworks.base import Aside, Inside, Packing

from . import frame, sized


class HostFrame(pd.DataFrame):  # type: ignore[misc]
    """A frame of cuDF, in the notebook."""

    _gpulease_hosted = "cudf"

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def to_pandas(self) -> Any:
        """Return pandas' own, as cuDF's frames do."""
        return pd.DataFrame(self).copy()


class HostSeries(pd.Series):  # type: ignore[misc]
    """A series of cuDF, in the notebook."""

    _gpulease_hosted = "cudf"

    @property
    def _constructor(self) -> Any:
        return pd.Series

    def to_pandas(self) -> Any:
        """Return pandas' own, as cuDF's series do."""
        return pd.Series(self).copy()


#: An index has no class for it: its own way of being made gives one of pandas' own.
_CLASSES: dict[str, Any] = {"DataFrame": HostFrame, "Series": HostSeries}


def host(made: str, values: Any) -> Any:
    """Return pandas' values as what they are known by again."""
    kind = _CLASSES.get(made)
    return values if kind is None else kind(values)


class _HostFrames(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return kind in _CLASSES.values()

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside([obj.attrs], sized(obj))

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        made = next(name for name, kind in _CLASSES.items() if type(obj) is kind)
        return frame, (made, obj.to_pandas())


FRAMEWORK = _HostFrames()
