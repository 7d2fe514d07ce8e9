"""plotly: figures by their attributes, so that a trace or layout with a name stays the figure's.

Their own way of being pickled gives a copy of what is drawn alone: ``fig.data[0]`` would be another
object than the trace that has a name as well, and arrays would be text
(https://github.com/plotly/plotly.py, ``BaseFigure.__reduce__``).
"""

from __future__ import annotations

from typing import Any

from plotly import graph_objects
from plotly.basedatatypes import BaseFigure, BasePlotlyType

from gpulease.transfer_next.refuse import live_kind

from .base import Aside, Inside, Packing, new

#: What checks a figure's values ends so; plotly has one of each for all figures.
_CHECKS = "_validator"


class _Plotly(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        # A FigureWidget has its other half on the page.
        return issubclass(kind, BaseFigure | BasePlotlyType) and live_kind(kind) is None

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside(list(_state(obj).values()))

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return new, (type(obj),), _state(obj), None, None, _fill


def _state(obj: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(obj).items() if not name.endswith(_CHECKS)}


def _fill(obj: Any, state: dict[str, Any]) -> None:
    obj.__dict__.update(state)
    if isinstance(obj, BaseFigure):
        fresh = vars(graph_objects.Figure())
        obj.__dict__.update((n, value) for n, value in fresh.items() if n.endswith(_CHECKS))


FRAMEWORK = _Plotly()
