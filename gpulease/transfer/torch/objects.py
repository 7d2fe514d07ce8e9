"""What works on tensors: modules, optimisers, loaders, generators."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader
from torch.utils.hooks import RemovableHandle

from gpulease.transfer import rebuild
from gpulease.transfer.refuse import RefusedError
from gpulease.transfer.torch import loading
from gpulease.transfer.torch.commit import each_set

_RAW = (
    torch.nn.Module,
    torch.optim.lr_scheduler.LRScheduler,
    torch.storage.TypedStorage,
    RemovableHandle,
)


def is_raw(kind: type) -> bool:
    """Say whether objects are their attributes: modules, but for those that torch has ways for."""
    if not issubclass(kind, _RAW) or issubclass(kind, torch.jit.ScriptModule):
        return False
    own: Any = kind.__getstate__
    # Torch pickles a module as all its attributes, in a copy of their dictionary.
    if own in (torch.nn.Module.__getstate__, RemovableHandle.__getstate__):
        return True
    where = getattr(own, "__module__", None) or ""
    # That of a parametrised module only refuses (torch.nn.utils.parametrize, _inject_new_class).
    return not where.startswith("torch.") or where == parametrize.__name__


def attributes(pickler: Any, obj: Any) -> Any:
    """Reduce an object to its attributes, except where its class has a way of its own."""
    compiled = obj.__dict__.get("_compiled_call_impl") is not None  # which torch leaves out
    return pickler.taken_apart(obj) if is_raw(type(obj)) and not compiled else NotImplemented


def scaler(pickler: Any, obj: Any) -> Any:
    """Reduce a scaler, unless it is between two steps: those it keeps by the optimisers' ``id``."""
    if obj.__dict__.get("_per_optimizer_states"):
        raise RefusedError(
            "a GradScaler before its update() (call that in the cell that calls its step())"
        )
    return pickler.taken_apart(obj)


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


class Restart:
    """In place of the workers that a loader kept on the other side (``persistent_workers``)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def _reset(self, loader: Any) -> None:
        """Start workers, and draw from the loader's generator what going on would have drawn.

        A first start draws a seed for the workers; those that are there have one.
        """
        mine = torch.Generator().manual_seed(self.seed)
        with each_set([loader], "generator", mine):
            loader._iterator = loader._get_iterator()


def loader(_pickler: Any, obj: DataLoader[Any]) -> Any:
    """Reduce a loader to its attributes, without its workers."""
    live: Any = obj._iterator
    if live is not None and not isinstance(live, Restart):
        live = Restart(live._base_seed)
    state = {**obj.__dict__, "_iterator": live}
    return rebuild.bare, (type(obj),), state, None, None, rebuild.fill_bare


# A scheduler wraps the optimiser's ``step`` in a function that refers to it weakly
# (torch.optim.lr_scheduler, patch_track_step_called).  An optimiser's own __getstate__ leaves that
# wrapper and every hook out.


def optimizer(_pickler: Any, obj: torch.optim.Optimizer) -> Any:
    """Reduce an optimiser to its attributes, without what a scheduler put around ``step``."""
    attributes = dict(obj.__dict__)
    wrapped = hasattr(attributes.get("step"), "_wrapped_by_lr_sched")
    if wrapped:
        del attributes["step"]
    return rebuild.bare, (type(obj),), (attributes, wrapped), None, None, set_optimizer


def set_optimizer(obj: torch.optim.Optimizer, state: tuple[dict[str, Any], bool]) -> None:
    """Give an optimiser its attributes, and a scheduler's wrapper where it had one."""
    attributes, wrapped = state
    obj.__dict__.update(attributes)
    if "_optimizer_step_pre_hooks" in attributes:  # a wrapper of another one has none of its own
        obj._patch_step_function()  # as its own __setstate__ does
    if wrapped:
        obj.step = _wrapped_step(obj)


def _wrapped_step(obj: torch.optim.Optimizer) -> Any:
    optimizer, step = weakref.ref(obj), type(obj).step

    @functools.wraps(step)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found: Any = optimizer()
        found._opt_called = True  # what the scheduler's wrapper does
        return step(found, *args, **kwargs)

    wrapper.__dict__["_wrapped_by_lr_sched"] = True
    return wrapper


def script(_pickler: Any, module: torch.jit.ScriptModule) -> Any:
    """Refuse a scripted or traced module: torch does not pickle one.

    What its code was optimised to so far, and the Python class of a traced one, are in no file.
    """
    raise RefusedError("a scripted or traced module (script it where it is used)", module)
