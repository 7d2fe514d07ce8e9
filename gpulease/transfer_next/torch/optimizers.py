"""What an optimiser consists of, and what a scheduler puts around its ``step``."""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch

# A scheduler wraps the optimiser's ``step`` in a function that refers to it weakly
# (torch.optim.lr_scheduler, patch_track_step_called).  An optimiser's own __getstate__ leaves that
# wrapper and every hook out.


def optimizer_state(obj: torch.optim.Optimizer) -> tuple[dict[str, Any], bool]:
    """Return an optimiser's attributes, and whether a scheduler has wrapped its ``step``."""
    state = dict(obj.__dict__)
    wrapped = getattr(state.get("step"), "_wrapped_by_lr_sched", False)
    if wrapped:
        del state["step"]
    return state, bool(wrapped)


def set_optimizer(obj: torch.optim.Optimizer, state: tuple[dict[str, Any], bool]) -> None:
    """Give an optimiser its attributes, and a scheduler's wrapper where it had one."""
    attributes, wrapped = state
    obj.__dict__.update(attributes)
    if "_optimizer_step_pre_hooks" in attributes:  # a wrapper of another one has none of its own
        obj._patch_step_function()  # as its own __setstate__ does
    if wrapped:
        obj.step = _wrapped_step(obj)


def _wrapped_step(obj: torch.optim.Optimizer) -> Any:
    optimizer = weakref.ref(obj)
    step: Any = type(obj).step

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found: Any = optimizer()
        found._opt_called = True  # what the scheduler's wrapper does
        return types.MethodType(step, found)(*args, **kwargs)

    wrapper.__dict__.update(step.__dict__)
    wrapper.__name__, wrapper.__qualname__ = step.__name__, step.__qualname__
    wrapper.__module__, wrapper.__doc__ = step.__module__, step.__doc__
    wrapper.__dict__["_wrapped_by_lr_sched"] = True
    return wrapper
