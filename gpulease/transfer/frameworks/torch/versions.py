"""Tensors whose writes count as one: a tensor, its views, and what ``detach`` returned of it.

A graph that saved one of them may not run backward after another was written to; with a count for
each it would, over the new values, and say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gpulease.transfer.frameworks.base import Packing

#: Whose count it is, and whether the tensor is a view of that one.
Shared = tuple[torch.Tensor, bool]


def find_shared(tensors: list[torch.Tensor], packing: Packing) -> None:
    """Find out which of the tensors over one storage share their count."""
    found: dict[int, Shared] = packing.scratch.setdefault("shared", {})
    equal: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        if not tensor.is_inference():
            equal.setdefault(tensor._version, []).append(tensor)
    for several in equal.values():
        for together in _together(several):
            owner = _owner(together, packing)
            for tensor in together:
                if tensor is not owner and tensor.grad_fn is None:
                    found[id(tensor)] = (owner, _is_view(tensor, owner))


def shared(tensor: torch.Tensor, packing: Packing) -> Shared | None:
    """Return with whom a tensor shares its count, None where it has its own."""
    known: dict[int, Shared] = packing.scratch.get("shared", {})
    return known.get(id(tensor))


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


def _owner(together: list[torch.Tensor], packing: Packing) -> torch.Tensor:
    bases = [tensor._base for tensor in together if tensor._base is not None]
    whole = [tensor for tensor in together if any(tensor is base for base in bases)]
    return min(whole or together, key=lambda tensor: (tensor._is_view(), packing.oid(tensor)))


def _is_view(tensor: torch.Tensor, owner: torch.Tensor) -> bool:
    plain = type(tensor) is torch.Tensor and tensor.dtype is owner.dtype
    bits = tensor.is_conj() == owner.is_conj() and tensor.is_neg() == owner.is_neg()
    return tensor._base is owner and owner.grad_fn is None and plain and bits


def sharing(owner: torch.Tensor, view: bool, like: torch.Tensor) -> torch.Tensor:
    """Return a new tensor that shows what ``like`` does and shares the count of ``owner``."""
    if view and owner.untyped_storage() is like.untyped_storage():
        with torch.set_grad_enabled(not owner.requires_grad):
            return owner.as_strided(like.size(), like.stride(), like.storage_offset())
    made = owner.detach()
    made.data = like
    return made
