"""What works on tensors: modules, optimisers, schedulers and scalers, loaders, handles of hooks."""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader
from torch.utils.hooks import RemovableHandle

from gpulease.transfer.frameworks import base
from gpulease.transfer.refuse import RefusedError

from . import loaders, scripts

_LIMITS = (torch.finfo, torch.iinfo)
_KINDS = (
    torch.optim.Optimizer,
    DataLoader,
    torch.jit.ScriptModule,
    RemovableHandle,
    torch.autograd.graph.Node,
    torch.Generator,
    torch.amp.GradScaler,
    *_LIMITS,
)
_SCALING = "a GradScaler before its update() (call that in the cell that calls its step())"


def claims(kind: type) -> bool:
    """Say whether objects of this type are pickled in a way of ours."""
    return issubclass(kind, _KINDS) or _is_parametrized(kind)


def inside(obj: Any) -> base.Inside:
    """Return what such an object reaches."""
    if isinstance(obj, torch.optim.Optimizer):
        return base.Inside(list(_optimizer_state(obj)[0].values()))
    if isinstance(obj, DataLoader):
        return base.Inside(list(loaders.state(obj).values()))
    if isinstance(obj, RemovableHandle):
        return base.Inside(list(obj.__getstate__()))
    if isinstance(obj, (torch.autograd.graph.Node, torch.Generator, *_LIMITS)):
        return base.Inside([])
    if isinstance(obj, torch.jit.ScriptModule):
        return base.Inside(list(scripts.tensors(obj).values()))
    return base.Inside([obj.__dict__])


def reduce(obj: Any) -> Any:
    """Return the reduction of such an object."""
    if isinstance(obj, torch.optim.Optimizer):
        return base.new, (type(obj),), _optimizer_state(obj), None, None, set_optimizer
    if isinstance(obj, RemovableHandle):
        return NotImplemented
    if isinstance(obj, torch.jit.ScriptModule):
        return scripts.reduce(obj)
    if isinstance(obj, _LIMITS):
        return type(obj), (getattr(torch, obj.dtype),)
    if isinstance(obj, torch.amp.GradScaler) and obj.__dict__.get("_per_optimizer_states"):
        raise RefusedError(_SCALING)  # they are kept by the optimisers' ``id``
    state = loaders.state(obj) if isinstance(obj, DataLoader) else dict(obj.__dict__)
    return base.new, (type(obj),), state, None, None, base.set_attributes


def _is_parametrized(kind: type) -> bool:
    # Its own __getstate__ only refuses: torch.nn.utils.parametrize, _inject_new_class.
    own: Any = kind.__dict__.get("__getstate__")
    return bool(getattr(own, "__module__", "") == parametrize.__name__)


# A scheduler wraps the optimiser's ``step`` in a function that refers to it weakly
# (torch.optim.lr_scheduler, patch_track_step_called).  An optimiser's own __getstate__ leaves that
# wrapper and every hook out.


def _optimizer_state(obj: torch.optim.Optimizer) -> tuple[dict[str, Any], bool]:
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
