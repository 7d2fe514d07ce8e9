"""Tensors on their way out: what they are beside the bytes of the memory that they show."""

from __future__ import annotations

from typing import Any

import torch

from gpulease.transfer.frameworks.base import Inside, Packing
from gpulease.transfer_next.refuse import RefusedError
from gpulease.transfer_next.torch import valueless

from . import graphs, loading, versions
from .memories import is_away, is_plain, memory_of, seen, shown_by, span, split_plain

_TENSOR: Any = torch.Tensor
# Called by `map`, so that thousands of tensors take no call of Python's each.
_IS_LEAF, _RETAINS = _TENSOR.is_leaf.__get__, _TENSOR.retains_grad.__get__


def inside_all(tensors: list[torch.Tensor], scratch: dict[Any, Any]) -> Inside:
    """Return what tensors reach: their gradients, hooks, attributes, and their graphs' leaves."""
    memory = seen(scratch)
    with torch._C.DisableTorchFunctionSubclass():
        plain, others = split_plain(tensors)
        found = [_inside_other(tensor) for tensor in others]
        values = [value for other in found for value in other.values]
        spans = [span for other in found for span in other.spans]
        shown = shown_by(plain)
        memory.update(zip(map(id, plain), shown, strict=True))
        spans += [(low, high) for _, low, high in shown]
        for tensor in _with_more(plain, scratch):
            values += (_content(tensor) or {}).values()
        graph = graphs.reached(scratch).of(plain)
        values += {id(each.leaves): each.leaves for each in graph}.values()
    return Inside(values, spans)


def _with_more(tensors: list[torch.Tensor], scratch: dict[Any, Any]) -> list[torch.Tensor]:
    """Return the tensors that may have anything beside their memory and their graph."""
    spaces = [tensor.__dict__ for tensor in tensors]
    columns = zip(tensors, map(_IS_LEAF, tensors), map(_RETAINS, tensors), spaces, strict=True)
    more = [tensor for tensor, leaf, retains, space in columns if leaf or retains or space]
    bare: set[int] = scratch.setdefault("bare", set())
    bare.update(map(id, tensors))
    bare.difference_update(map(id, more))
    return more


def contents(tensors: list[torch.Tensor], packing: Packing) -> list[tuple[Any, Any]]:
    """Return the tensors that something is put into, with it."""
    bare = packing.walked.get("bare", ())
    found = ((tensor, content(tensor)) for tensor in tensors if id(tensor) not in bare)
    return [(tensor, each) for tensor, each in found if each is not None]


def content(tensor: torch.Tensor) -> dict[str, Any] | None:
    """Return what is put into the tensor of the other side, beside its memory."""
    if type(tensor) is torch.Tensor:
        return _content(tensor)
    with torch._C.DisableTorchFunctionSubclass():
        return _content(tensor)


def _content(tensor: torch.Tensor) -> dict[str, Any] | None:
    out: dict[str, Any] = {}
    if tensor.is_leaf:
        if tensor.grad is not None:
            out["grad"] = tensor.grad
        if tensor._backward_hooks:
            out["hooks"] = tensor._backward_hooks
        if post := tensor._post_accumulate_grad_hooks:
            out["post"] = post
    elif tensor.retains_grad:
        if tensor.grad is not None:
            out["grad"] = tensor.grad
        out["retain"] = True
    if tensor.__dict__ and not isinstance(tensor, valueless.ValuelessTensor):
        out["attributes"] = tensor.__dict__
    return out or None


def reduce(tensor: torch.Tensor, packing: Packing) -> Any:
    """Return the reduction of any tensor."""
    with torch._C.DisableTorchFunctionSubclass():
        if not is_plain(tensor):
            return _reduce_other(tensor)
        if isinstance(tensor, valueless.ValuelessTensor) or is_away(tensor, packing):
            return valueless.stand_in, _away(tensor, packing)
        if tensor.grad_fn is not None:
            return graphs.reduce(tensor, packing)
        oid = packing.lasting_oid(tensor)
        inference = tensor.is_inference()
        if oid and not inference:
            packing.versions[oid] = tensor._version
        memory, row = memory_of(tensor, packing)
        flags = (tensor.is_conj(), tensor.is_neg(), inference)
        kind = type(tensor)
        args = (oid, kind, memory, row, tensor.requires_grad, flags if any(flags) else None)
        return loading.tensor, args + (versions.shared(tensor, packing) or ())


def _away(tensor: torch.Tensor, packing: Packing) -> tuple[Any, ...]:
    own = (", ".join(packing.group), type(tensor), tensor.grad_fn is not None)
    label, kind, of_graph = getattr(tensor, "gpulease_of", own)
    if not packing.structure:
        raise RefusedError(f"the structure of {label} alone: its values are on the GPU")
    row = (tensor.dtype, tensor.storage_offset(), tuple(tensor.size()), tensor.stride())
    return label, kind, row, tensor.requires_grad, of_graph


def _parts(tensor: torch.Tensor) -> list[torch.Tensor] | None:
    layout = tensor.layout
    if layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return None


def _inside_other(tensor: torch.Tensor) -> Inside:
    parts = _parts(tensor) or []
    values: list[Any] = [tensor.grad] if tensor.is_leaf and tensor.grad is not None else []
    return Inside(values, [span(part.untyped_storage()) for part in parts])


def _reduce_other(tensor: torch.Tensor) -> Any:
    """Reduce what is no face over one storage by its parts, or in its own way: as a value."""
    graphs.refuse_graph(tensor)
    if tensor.is_quantized and type(tensor) is torch.Tensor:
        return _reduce_quantized(tensor)
    parts = _parts(tensor)
    if parts is None:
        return NotImplemented
    plain = [part.detach() for part in parts]
    coalesced = tensor.is_coalesced() if tensor.layout is torch.sparse_coo else None
    args = (tensor.layout, plain, tuple(tensor.size()), coalesced, tensor.requires_grad)
    return loading.sparse, args, tensor.grad, None, None, loading.set_grad


def _reduce_quantized(tensor: torch.Tensor) -> Any:
    """Reduce a quantised tensor by its integers.

    Its own reduction holds the address of its storage, so a packed layer, which makes its tensors
    anew each time, would seem to change by being looked at.
    """
    kind = tensor.qscheme()
    if kind in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        args: tuple[Any, ...] = (tensor.q_scale(), tensor.q_zero_point())
    elif kind in (torch.per_channel_affine, torch.per_channel_symmetric):
        args = (
            tensor.q_per_channel_scales(),
            tensor.q_per_channel_zero_points(),
            tensor.q_per_channel_axis(),
        )
    else:
        return NotImplemented
    return loading.quantized, (tensor.int_repr(), *args)
