"""Tensors on their way out: faces over memory, and what they are beside it."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from gpulease.transfer_next.refuse import RefusedError

from . import loading, memory
from .commit import content

_NO_DISPATCH = getattr(torch.Tensor, "__torch_dispatch__", None)


class Anchor:
    """Stands for the graphs of one side that reach the same leaves."""

    def __init__(self, where: str, leaves: tuple[torch.Tensor, ...]) -> None:
        self.where = where
        self.leaves = leaves

    def __reduce__(self) -> Any:
        return loading.anchor, (self.where, self.leaves)


def is_plain(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is a strided face over a storage and nothing else."""
    return (
        getattr(type(tensor), "__torch_dispatch__", None) is _NO_DISPATCH
        and tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_nested or tensor.is_mkldnn)
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def reduce(pickler: Any, tensor: torch.Tensor) -> Any:
    """Reduce any tensor."""
    with torch._C.DisableTorchFunctionSubclass():
        if not is_plain(tensor):
            return _reduce_other(pickler, tensor)
        own = memory.of(pickler)
        storage, row = own.note(tensor)
        oid, kind = pickler.met.others.id_of(tensor), type(tensor)
        if tensor.grad_fn is not None:
            return _of_graph(pickler, own, tensor, storage, row)
        bits = {n: True for n in ("conj", "neg") if getattr(tensor, f"is_{n}")()}
        version = None if tensor.is_inference() else tensor._version
        args = (oid, kind, storage, row, tensor.requires_grad, version, bits or None)
        shared = own.shared.get(id(tensor), ())
        return loading.tensor, args + shared, content(tensor), None, None, loading.fill


def _of_graph(pickler: Any, own: memory.Met, tensor: torch.Tensor, storage: Any, row: Any) -> Any:
    """Reduce a tensor of a graph: the value travels, the graph stays."""
    graph = own.reached.of(tensor)
    side, node = pickler.met.label, graph.node
    stands = isinstance(node, loading.STAND_IN)  # here for a graph of the other side
    if stands and tensor._backward_hooks:
        raise RefusedError("a hook on a value whose graph is on the other side", tensor)
    where = node.where if stands else side + ("over" if graph.over_away else "")
    over = own.anchors.get((where, id(graph.leaves)))
    if over is None:
        leaves = tuple(sorted(graph.leaves, key=pickler.met.others.id_of))  # both sides sort alike
        if pickler.met.structure_of is not None:  # where no value is, no backward needs a leaf
            leaves = ()
        over = own.anchors[where, id(graph.leaves)] = Anchor(where, leaves)
    kind = None if type(tensor) is torch.Tensor else type(tensor)
    signed = loading.signature(tensor, side)
    oid = pickler.met.others.id_of(tensor)
    args = (oid, over, kind, storage, row, signed, tensor._version)
    return loading.graph_tensor, args, content(tensor), None, None, loading.fill


def _parts(tensor: torch.Tensor) -> list[torch.Tensor] | None:
    layout = tensor.layout
    if layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return None


def _reduce_other(pickler: Any, tensor: torch.Tensor) -> Any:
    """Reduce what is no face over one storage by its parts, or in its own way: as a value."""
    if tensor.grad_fn is not None:
        raise RefusedError(
            f"a {tensor.layout} tensor that is part of a computation graph (use .detach())"
        )
    if tensor.is_quantized and type(tensor) is torch.Tensor:
        return _reduce_quantized(tensor)
    if tensor.is_nested and type(tensor) is torch.Tensor and tensor.layout is torch.strided:
        return _reduce_nested(pickler, tensor)
    parts = _parts(tensor)
    if parts is None:
        return NotImplemented
    own = memory.of(pickler)
    faces = [own.place(part) for part in parts]
    coalesced = tensor.is_coalesced() if tensor.layout is torch.sparse_coo else None
    args = (tensor.layout, faces, tuple(tensor.size()), coalesced, tensor.requires_grad)
    return loading.sparse, args, tensor.grad, None, None, loading.fill_grad


def _reduce_nested(pickler: Any, tensor: torch.Tensor) -> Any:
    """Reduce a nested tensor to its memory, and how its parts lie in it.

    Its own reduction makes another tensor over that memory at each look, which would seem new.
    """
    kind: Any = tensor
    tables = (kind._nested_tensor_size(), kind._nested_tensor_strides(),
              kind._nested_tensor_storage_offsets())  # fmt: skip
    if tables[0].dim() != 2:
        raise RefusedError("a nested tensor without parts, which torch does not load", tensor)
    rows = [table.tolist() for table in tables]
    args = (memory.of(pickler).place(kind.values()), rows, tensor.requires_grad)
    return loading.nested, args, tensor.grad, None, None, loading.fill_grad


def _reduce_quantized(tensor: torch.Tensor) -> Any:
    """Reduce a quantised tensor by its integers.

    Its own reduction holds the address of its storage, so a packed layer, which makes its tensors
    anew each time, would seem to change by being looked at.
    """
    kind = tensor.qscheme()
    if kind in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        args: tuple[Any, ...] = (tensor.q_scale(), tensor.q_zero_point())
    elif kind in (torch.per_channel_affine, torch.per_channel_symmetric):
        scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        numbers = ((each.dtype, each.tolist()) for each in (scales, zeros))
        args = (*numbers, tensor.q_per_channel_axis())
    else:
        return NotImplemented
    integers = tensor.int_repr().contiguous()
    raw = ctypes.string_at(integers.data_ptr(), integers.nbytes)
    return loading.quantized, (raw, integers.dtype, tuple(integers.size()), *args)
