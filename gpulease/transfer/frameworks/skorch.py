"""skorch: nets by their attributes.

Their own way of being pickled writes everything of the device into bytes of its own: a module or an
optimiser that has a name as well would be another one on the other side
(https://github.com/skorch-dev/skorch, ``NeuralNet.__getstate__``).
"""

from __future__ import annotations

from typing import Any

from skorch import NeuralNet

from .base import Aside, Inside, Packing, new, set_attributes


class _Skorch(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return issubclass(kind, NeuralNet)

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside([obj.__dict__])

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return new, (type(obj),), dict(obj.__dict__), None, None, set_attributes


FRAMEWORK = _Skorch()
