"""accelerate: what a process knows of itself is its own (``PartialState`` and its kin)."""

from __future__ import annotations

from typing import Any

from accelerate import state

from .base import Aside, Inside, Packing

#: All instances of one of these share one dictionary, the process's.
_SHARED = (state.PartialState, state.AcceleratorState, state.GradientState)
#: Refers weakly to the loaders that are being iterated right now.
_LOADERS = "_dataloader_references_ref"


class _Accelerate(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return issubclass(kind, _SHARED)

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside([_shared(obj)])

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return here, (type(obj), _shared(obj))


def _shared(obj: Any) -> dict[str, Any]:
    return {name: value for name, value in obj.__dict__.items() if name != _LOADERS}


def here(cls: Any, shared: dict[str, Any]) -> Any:
    """Return this process's state; it becomes like the other's where this one has none yet."""
    made = cls.__new__(cls)
    if not cls._shared_state:
        cls._shared_state.update(shared)
        if issubclass(cls, state.GradientState):
            cls._shared_state[_LOADERS] = [None]
    made.__dict__ = cls._shared_state
    return made


FRAMEWORK = _Accelerate()
