"""accelerate: what a process knows of itself is its own (``PartialState`` and its kin).

Every trainer of transformers holds it, and every accelerator with the loaders that it prepares
(``transformers_trainer`` and ``accelerate_loop`` of the corpus).
"""

from __future__ import annotations

import pickle
from typing import Any

from accelerate import state

from . import ways
from .refuse import RefusedError

#: Refers weakly to the loaders that are being iterated right now.
_LOADERS = "_dataloader_references_ref"
_STATES: tuple[Any, ...] = (state.PartialState, state.AcceleratorState, state.GradientState)


def reduce(_pickler: Any, obj: Any) -> Any:
    """Reduce the state of a process, of which all instances share one dictionary a class.

    One class asks another: those of all of them travel.
    """
    try:
        return here, (type(obj), pickle.dumps([_told(each) for each in _STATES], protocol=5))
    except Exception as error:
        words = f"accelerate's state of the process ({type(error).__name__}: {error})"
        raise RefusedError(words, obj) from error


def _told(cls: Any) -> dict[str, Any]:
    return {name: value for name, value in cls._shared_state.items() if name != _LOADERS}


def here(cls: Any, told: bytes) -> Any:
    """Return this process's state; it becomes like the other's where this one has none yet."""
    for each, shared in zip(_STATES, pickle.loads(told), strict=True):
        if shared and not each._shared_state:
            each._shared_state.update(shared)
            if each is state.GradientState:
                each._shared_state[_LOADERS] = [None]
    made = cls.__new__(cls)
    made.__dict__ = cls._shared_state
    return made


ways.enter(dict.fromkeys(_STATES, reduce))
