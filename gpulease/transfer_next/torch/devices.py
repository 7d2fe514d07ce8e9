"""Where a storage belongs: a device that one side has and the other has not.

The tag is the storage's own, not a tensor's attribute, which ``clone`` or a slice would lose.
Nothing here initialises a device: forks and launchers of the notebook need that left to them.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch

#: Storage to device; ``data`` says at once whether there is any.
_tags: Any = weakref.WeakKeyDictionary()
_BYTES: Any = torch.UntypedStorage
_DEVICE = _BYTES.device.__get__


def tag_of(storage: torch.UntypedStorage) -> str:
    """Return the device on which a storage belongs, '' for this side's own memory."""
    own = storage.device
    if own.type not in ("cpu", "meta"):
        return str(own)
    tag: str = _tags.get(storage, "") if _tags.data else ""
    return tag


def tags_of(storages: list[torch.UntypedStorage]) -> list[str]:
    """Return ``tag_of`` each, of thousands in few steps."""
    if not _tags.data and {device.type for device in set(map(_DEVICE, storages))} <= {"cpu"}:
        return [""] * len(storages)
    return list(map(tag_of, storages))


def is_here(tag: str, side: str) -> bool:
    """Say whether values of that device are put on it in this process.

    The notebook's own kernel has a device only where its cells use one already: there the GPU is
    somebody else's until a lease says otherwise.
    """
    backend = getattr(torch, tag.partition(":")[0], None)
    asked = getattr(backend, "is_initialized" if side == "h" else "is_available", None)
    return bool(asked is not None and asked())


def empty(size: int, tag: str, side: str) -> torch.UntypedStorage:
    """Return a storage of ``size`` bytes on its device, or here with the tag of that device."""
    if tag and is_here(tag, side):
        return torch.UntypedStorage(size, device=_there(tag))
    storage = torch.UntypedStorage(size)
    if tag:
        _copy_to_cpu()
        _tags[storage] = tag
    return storage


def _there(tag: str) -> str:
    """Return the device, or the first of its kind where this machine has fewer of them."""
    kind, _, index = tag.partition(":")
    there = not index or int(index) < getattr(torch, kind).device_count()
    return tag if there else f"{kind}:0"


def is_tagged(tensor: torch.Tensor) -> bool:
    """Say whether a tensor of this side's memory belongs on a device."""
    with torch._C.DisableTorchFunctionSubclass():
        if not _tags.data or tensor.device.type != "cpu":
            return False
        try:
            return tensor.untyped_storage() in _tags
        except (NotImplementedError, RuntimeError):  # no face over one storage
            return False


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
    with torch._C.DisableTorchFunctionSubclass():
        try:
            storage = obj.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return {}
        return {storage.data_ptr(): storage.nbytes()}


def total_use(error: BaseException) -> int | None:
    """Return the bytes that tensors take on the device; None where ``error`` is no lack of room."""
    if not isinstance(error, torch.OutOfMemoryError):
        return None
    backend = getattr(torch, torch.accelerator.current_accelerator().type)
    return int(backend.memory_allocated())
