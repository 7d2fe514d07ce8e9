"""What works on tensors: modules, optimisers, schedulers and scalers, loaders, handles of hooks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader
from torch.utils.hooks import RemovableHandle

from gpulease.transfer.frameworks import base
from gpulease.transfer_next.refuse import RefusedError
from gpulease.transfer_next.torch import loaders, scripts
from gpulease.transfer_next.torch.optimizers import optimizer_state, set_optimizer

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
        return base.Inside(list(optimizer_state(obj)[0].values()))
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
        return base.new, (type(obj),), optimizer_state(obj), None, None, set_optimizer
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
