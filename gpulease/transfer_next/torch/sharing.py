"""Tensors whose writes count as one: a tensor, its views, and what ``detach`` returned of it.

A graph that saved one of them may not run backward after another was written to; with a count for
each it would, over the new values, and say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def find(tensors: list[torch.Tensor], oid_of: Callable[[Any], str]) -> dict[int, Any]:
    """Return by ``id`` whose count tensors over one storage share, and whether they are views."""
    found: dict[int, tuple[torch.Tensor, bool]] = {}
    equal: dict[int, list[torch.Tensor]] = {}
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors:
            if not tensor.is_inference():
                equal.setdefault(tensor._version, []).append(tensor)
        for several in equal.values():
            for together in _together(several):
                owner = _owner(together, oid_of)
                for tensor in together:
                    if tensor is not owner and tensor.grad_fn is None:
                        found[id(tensor)] = (owner, _is_view(tensor, owner))
    return found


def _together(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield those of equal count that go on together; torch says it of views only, so try."""
    if len(tensors) < 2:
        return
    count = tensors[0]._version
    found: dict[int, list[torch.Tensor]] = {}
    preserved: Any = torch.autograd._unsafe_preserve_version_counter(tuple(tensors))
    with preserved:
        for number, tensor in enumerate(tensors, 1):
            if tensor._version == count:
                torch._C._autograd._unsafe_set_version_counter((tensor,), (count + number,))
            found.setdefault(tensor._version, []).append(tensor)
    yield from (together for together in found.values() if len(together) > 1)


def _owner(together: list[torch.Tensor], oid_of: Callable[[Any], str]) -> torch.Tensor:
    bases = [tensor._base for tensor in together if tensor._base is not None]
    whole = [tensor for tensor in together if any(tensor is base for base in bases)]
    return min(whole or together, key=lambda tensor: (tensor._is_view(), oid_of(tensor)))


def _is_view(tensor: torch.Tensor, owner: torch.Tensor) -> bool:
    plain = type(tensor) is torch.Tensor and tensor.dtype is owner.dtype
    bits = tensor.is_conj() == owner.is_conj() and tensor.is_neg() == owner.is_neg()
    return tensor._base is owner and owner.grad_fn is None and plain and bits


def joined(owner: torch.Tensor, view: bool, like: torch.Tensor) -> torch.Tensor:
    """Return a new tensor that shows what ``like`` does and shares the count of ``owner``."""
    if view and owner.untyped_storage() is like.untyped_storage():
        with torch.set_grad_enabled(not owner.requires_grad):
            return owner.as_strided(like.size(), like.stride(), like.storage_offset())
    made = owner.detach()
    made.data = like
    return made
