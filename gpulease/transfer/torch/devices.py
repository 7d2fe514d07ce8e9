"""Where a storage belongs: a device that one side has and the other has not.

The tag is the storage's own, not a tensor's attribute, which ``clone`` or a slice would lose.
Nothing here initialises a device: forks and launchers of the notebook need that left to them.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.hooks import RemovableHandle

from gpulease.transfer.state import Row

#: Storage to device; ``data`` says at once whether there is any.
_tags: Any = weakref.WeakKeyDictionary()
# Private to torch: where one has gone, this room does not open, and tensors stay by name.
_extension_name = torch._C._get_privateuse1_backend_name
#: Has the call that seeds all of CUDA's devices once there is one, a new one for each seed.
_seeded = torch.cuda._lazy_seed_tracker


def tag_of(storage: torch.UntypedStorage) -> str:
    """Return the device on which a storage belongs, '' for this side's own memory."""
    own = storage.device
    if own.type != "cpu":
        return str(own)
    tag: str = _tags.get(storage, "") if _tags.data else ""
    return tag


def is_here(tag: str, side: str) -> bool:
    """Say whether values of that device are put on it in this process.

    The notebook's own kernel has a device only where its cells use one already: there the GPU is
    somebody else's until a lease says otherwise.
    """
    backend = getattr(torch, tag.partition(":")[0], None)
    asked = getattr(backend, "is_initialized" if side == "h" else "is_available", None)
    return bool(asked is not None and asked())


def empty(
    size: int, tag: str, side: str, came: torch.UntypedStorage | None = None
) -> torch.UntypedStorage:
    """Return a storage of ``size`` bytes on its device, or here with the tag of that device.

    ``came`` is one that has them already, here.
    """
    if tag == "meta" or (tag and is_here(tag, side)):
        return torch.UntypedStorage(size, device=_there(tag))
    storage = torch.UntypedStorage(size) if came is None else came
    if tag:
        _copy_to_cpu()
        _tags[storage] = tag
    return storage


def _there(tag: str) -> str:
    """Return the device, or the first of its kind where this machine has fewer of them."""
    kind, _, index = tag.partition(":")
    there = not index or int(index) < getattr(torch, kind).device_count()
    return tag if there else f"{kind}:0"


def _storage_of(tensor: torch.Tensor) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        try:
            return tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # no face over one storage
            return None


def is_tagged(tensor: torch.Tensor) -> bool:
    """Say whether a tensor of this side's memory belongs on a device."""
    return bool(_tags.data) and _storage_of(tensor) in _tags


# ---- what is a copy on a device is one here


@functools.cache
def _copy_to_cpu() -> None:
    """From the first tagged storage on, let ``.cpu()`` and ``.to("cpu")`` of one copy.

    They do where the device is.  Here torch would return the tensor itself, and what is written to
    it would appear on the device.
    """
    kind: Any = torch.Tensor
    own_cpu, own_to, own_numpy = kind.cpu, kind.to, kind.numpy

    @functools.wraps(own_cpu)
    def cpu(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        out: torch.Tensor = own_cpu(self, *args, **kwargs)
        return out.clone() if out is self and is_tagged(self) else out

    @functools.wraps(own_to)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        out: torch.Tensor = own_to(self, *args, **kwargs)
        if out is not self or not is_tagged(self):
            return out
        where = args[0] if args else kwargs.get("device", kwargs.get("other"))
        elsewhere = isinstance(where, str | torch.device) or (
            isinstance(where, torch.Tensor) and not is_tagged(where)
        )
        return out.clone() if elsewhere else out

    @functools.wraps(own_numpy)
    def numpy(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        out = own_numpy(self, *args, **kwargs)
        return out.copy() if is_tagged(self) else out

    kind.cpu, kind.to, kind.numpy = cpu, to, numpy


def is_of_the_cpu(value: Any) -> bool:
    """Say whether a value is a tensor that belongs to the CPU on both sides."""
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and value.dim() > 0  # a number of the CPU fits every device
        and not is_tagged(value)
    )


def use_of(obj: Any) -> dict[int, int]:
    """Return the bytes that a tensor takes on a device, by the storage's address."""
    if not isinstance(obj, torch.Tensor) or obj.device.type in ("cpu", "meta"):
        return {}
    storage = _storage_of(obj)
    return {} if storage is None else {storage.data_ptr(): storage.nbytes()}


def total_use(error: BaseException) -> int | None:
    """Return the bytes that tensors take on the device; None where ``error`` is no lack of room."""
    if not isinstance(error, torch.OutOfMemoryError):
        return None
    backend = getattr(torch, torch.accelerator.current_accelerator().type)
    return int(backend.memory_allocated())


class _Drawn(NamedTuple):
    """How often a seed was set and to what (0: never), and generators' states since, by device."""

    times: int = 0
    seed: int = 0
    devices: tuple[tuple[str, tuple[bytes, ...]], ...] = ()


class _Seeds:
    """One side's generators of torch's devices; needs no device, and initialises none.

    A seed counts when it was *set* since the last switch, not when its number changed: a cell that
    seeds with the same number again starts again.  What devices drew since then is their
    generators' state, which home keeps for the next companion.
    """

    def __init__(self) -> None:
        self._now = _Drawn()
        self._queued: Any = None

    def read(self) -> _Drawn | None:
        """Return the last seed and states of this process; None where there is nothing to tell."""
        queued = _seeded.manual_seed_all_cb  # none in a process whose device is in use
        if queued is not None and queued is not self._queued:
            self._queued = queued
            self._now = _Drawn(self._now.times + 1, torch.initial_seed())
        drawn = {
            name: tuple(map(_bytes, module.get_rng_state_all()))
            for name, module in _modules()
            if module.is_initialized()
        }
        if drawn:
            known = dict(self._now.devices) | drawn
            self._now = self._now._replace(devices=tuple(sorted(known.items())))
        return self._now if self._now != _Drawn() else None

    def set(self, told: _Drawn) -> None:
        """Give the devices of this process their generators' states.

        It waits for the first use of a device: torch runs seeds that wait after all else that does,
        so a seed from before these states must not wait with them.
        """
        if told == self._now:
            return
        drawn = dict(told.devices)
        for name, module in _modules():
            if name in drawn:
                _set_states(module, drawn[name])
            elif told.times != self._now.times:
                module.manual_seed_all(told.seed)
        self._now, self._queued = told, _seeded.manual_seed_all_cb


def _modules() -> Iterator[tuple[str, Any]]:
    """Return the devices of this torch that have generators, by name; CUDA also where none is."""
    for name in ("cuda", "xpu", _extension_name()):
        module = getattr(torch, name, None)
        if all(hasattr(module, each) for each in ("get_rng_state_all", "is_initialized")):
            yield name, module


def _bytes(state: torch.Tensor) -> bytes:
    return bytes(state.numpy())


def state_of(raw: bytes) -> torch.Tensor:
    """Return a generator's state of its bytes."""
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


def _set_states(module: Any, states: tuple[bytes, ...]) -> None:
    def give() -> None:
        module.set_rng_state_all([*map(state_of, states)][: module.device_count()])

    later = getattr(module, "_lazy_call", None)
    later(give) if later is not None else give()


_seeds = _Seeds()


def _set_hooks(number: int) -> None:
    # A module keeps its hooks by number, and each process counts for itself.
    RemovableHandle.next_id = max(RemovableHandle.next_id, number)


ROWS: dict[str, Row] = {
    "torch.generator": (
        lambda: _bytes(torch.get_rng_state()),
        lambda raw: torch.set_rng_state(state_of(raw)),
    ),
    "torch.seeds": (_seeds.read, _seeds.set),
    "torch.hooks": (lambda: RemovableHandle.next_id, _set_hooks),
}
