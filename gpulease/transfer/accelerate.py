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


def reduce(_pickler: Any, obj: Any) -> Any:
    """Reduce the state of a process, of which all instances share one dictionary."""
    shared = {name: value for name, value in vars(obj).items() if name != _LOADERS}
    try:
        return here, (type(obj), pickle.dumps(shared, protocol=5))
    except Exception as error:
        words = f"accelerate's state of the process ({type(error).__name__}: {error})"
        raise RefusedError(words, obj) from error


def here(cls: Any, shared: bytes) -> Any:
    """Return this process's state; it becomes like the other's where this one has none yet."""
    made = cls.__new__(cls)
    if not cls._shared_state:
        cls._shared_state.update(pickle.loads(shared))
        if issubclass(cls, state.GradientState):
            cls._shared_state[_LOADERS] = [None]
    made.__dict__ = cls._shared_state
    return made


ways.enter(dict.fromkeys((state.PartialState, state.AcceleratorState, state.GradientState), reduce))
