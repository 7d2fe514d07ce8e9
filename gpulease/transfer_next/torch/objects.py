"""What works on tensors: modules, optimisers, loaders, generators, scripts."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from gpulease.transfer_next import rebuild
from gpulease.transfer_next.attributes import new, set_attributes
from gpulease.transfer_next.refuse import RefusedError
from gpulease.transfer_next.torch import loaders, scripts

from . import loading
from .optimizers import optimizer_state, set_optimizer

_SCALING = "a GradScaler before its update() (call that in the cell that calls its step())"


_RAW = (
    torch.nn.Module,
    torch.optim.lr_scheduler.LRScheduler,
    torch.storage.TypedStorage,
    RemovableHandle,
)


#: How a module is pickled by torch: all its attributes, in a copy of their dictionary.
_MODULES: Any = getattr(torch.nn.Module, "__getstate__", None)


def is_raw(kind: type) -> bool:
    """Say whether objects are their attributes: modules, but for those that torch has ways for."""
    if not issubclass(kind, _RAW) or issubclass(kind, torch.jit.ScriptModule):
        return False
    own: Any = getattr(kind, "__getstate__", None)
    if own in (_MODULES, RemovableHandle.__getstate__):
        return True
    where = getattr(own, "__module__", None) or ""
    # That of a parametrised module only refuses (torch.nn.utils.parametrize, _inject_new_class).
    return not where.startswith("torch.") or where == parametrize.__name__


def attributes(pickler: Any, obj: Any) -> Any:
    """Reduce an object to its attributes, except where its class has a way of its own."""
    compiled = obj.__dict__.get("_compiled_call_impl") is not None  # which torch leaves out
    return pickler.taken_apart(obj) if is_raw(type(obj)) and not compiled else NotImplemented


def script(_pickler: Any, obj: Any) -> Any:
    """Reduce a scripted module to its code and its tensors."""
    return scripts.reduce(obj)


def optimizer(_pickler: Any, obj: Any) -> Any:
    """Reduce an optimiser to its attributes, without what a scheduler put around ``step``."""
    return new, (type(obj),), optimizer_state(obj), None, None, set_optimizer


def scaler(pickler: Any, obj: Any) -> Any:
    """Reduce a scaler, unless it is between two steps: those it keeps by the optimisers' ``id``."""
    if obj.__dict__.get("_per_optimizer_states"):
        raise RefusedError(_SCALING)
    return pickler.taken_apart(obj)


def loader(_pickler: Any, obj: Any) -> Any:
    """Reduce a loader, without its workers."""
    return new, (type(obj),), loaders.state(obj), None, None, set_attributes


def limits(_pickler: Any, obj: Any) -> Any:
    """Reduce ``finfo`` or ``iinfo``."""
    return type(obj), (getattr(torch, obj.dtype),)


def generator(pickler: Any, obj: torch.Generator) -> Any:
    """Reduce a generator to its state; that of a device is its own."""
    if obj is torch.default_generator:
        return getattr, (torch, "default_generator")
    if obj.device.type != "cpu":
        return NotImplemented
    return new_generator, (pickler.met.others.id_of(obj), bytes(obj.get_state().numpy()))


def new_generator(oid: str, state: bytes) -> torch.Generator:
    """Return this side's generator, which gets its state at the commit, or a new one."""
    here = rebuild.here()
    made = here.found(oid)
    if type(made) is not torch.Generator:
        made = torch.Generator()
        here.bind(oid, made)
    loading.plan().generators.append((made, state))
    return made
