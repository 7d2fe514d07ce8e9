"""Tensors on their way out: faces over memory, and what they are beside it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch

from gpulease.transfer.refuse import RefusedError
from gpulease.transfer.valueless import SMALL, refusal
from gpulease.transfer.ways import Reduce

from . import commit, loading, memory


@dataclass(eq=False)
class Anchor:
    """Stands for the graphs of one side that reach the same leaves."""

    where: str
    leaves: list[torch.Tensor]

    def __reduce__(self) -> Any:
        # A tuple that is kept here would be one that something outside holds.
        return loading.anchor, (self.where, tuple(self.leaves))


def is_plain(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is a strided face over a storage and nothing else."""
    return (
        type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_nested or tensor.is_mkldnn)
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def is_in_order(tensor: torch.Tensor) -> bool:
    """Say whether both sides pack a tensor alike: a view with a graph is none without it."""
    with torch._C.DisableTorchFunctionSubclass():
        if not is_plain(tensor):
            return False
        node = commit.node_of(tensor)
        return node is None or not (isinstance(node, loading.STAND_IN) or tensor._is_view())


def reduce(pickler: Any, tensor: torch.Tensor) -> Any:
    """Reduce any tensor."""
    with torch._C.DisableTorchFunctionSubclass():
        if not is_plain(tensor):
            return _reduce_other(pickler, tensor)
        own = memory.of(pickler)
        storage, row = own.note(tensor)
        oid, kind = pickler.met.others.id_of(tensor), type(tensor)
        if commit.node_of(tensor) is not None:
            return _of_graph(pickler, own, tensor, storage, row)
        version, bits = None if tensor.is_inference() else tensor._version, commit.bits_of(tensor)
        args = (oid, kind, storage, row, tensor.requires_grad, version, bits)
        shared = own.shared.get(id(tensor), ())
        content = commit.content(tensor) or None
        return loading.tensor, args + shared, content, None, None, loading.fill


def _of_graph(pickler: Any, own: memory.Met, tensor: torch.Tensor, storage: Any, row: Any) -> Any:
    """Reduce a tensor of a graph: the value travels, the graph stays."""
    reached, over_away = own.reached.of(tensor)
    side, node = pickler.met.label, commit.node_of(tensor)
    stands = isinstance(node, loading.STAND_IN)  # here for a graph of the other side
    if stands and tensor._backward_hooks:
        raise RefusedError("a hook on a value whose graph is on the other side", tensor)
    where = node.where if stands else side + ("over" if over_away else "")
    over = own.anchors.get((where, id(reached)))
    if over is None:
        leaves = sorted(reached, key=pickler.met.others.id_of)  # both sides sort alike
        if pickler.met.structure_of is not None:  # where no value is, no backward needs a leaf
            leaves.clear()
        over = own.anchors[where, id(reached)] = Anchor(where, leaves)
    signed = loading.signature(tensor, side)
    oid = pickler.met.others.id_of(tensor)
    args = (oid, over, type(tensor), storage, row, signed, tensor._version)
    content = commit.content(tensor) or None
    return loading.graph_tensor, args, content, None, None, loading.fill


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
    if commit.node_of(tensor) is not None:
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
    return loading.sparse, args, tensor.grad, None, None, commit.set_grad


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
    return loading.nested, args, tensor.grad, None, None, commit.set_grad


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


_TENSOR: Any = torch.Tensor
#: What is asked of a tensor by these needs no value.
_LOOKS = (
    "shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_leaf", "grad", "grad_fn",
    "nbytes", "itemsize", "is_meta", "is_sparse",
)  # fmt: skip
_ASKS = (
    "size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "element_size",
    "is_contiguous", "is_floating_point", "is_complex", "is_signed", "is_inference", "__len__",
    "__hash__",
)  # fmt: skip


_ALLOWED = frozenset((
    *(getattr(_TENSOR, name).__get__ for name in _LOOKS),
    *(getattr(_TENSOR, name) for name in _ASKS),
    torch.numel, torch.is_floating_point, torch.is_complex, torch.is_tensor,
))  # fmt: skip
#: What a tensor of a graph would answer otherwise than what stands for it.
_OF_GRAPHS = frozenset(getattr(_TENSOR, name).__get__ for name in ("is_leaf", "grad", "grad_fn"))


class ValuelessTensor(torch.Tensor):  # type: ignore[misc]
    """Stands at home for a tensor whose values are on the GPU."""

    #: The variables that it belongs to, in words, the class of what it stands for, and whether
    #: that is part of a computation graph.
    gpulease_of: tuple[str, Any, bool]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer what needs no value; raises GPULeaseError for the rest, as for being pickled."""
        if func not in _ALLOWED or (func in _OF_GRAPHS and args[0].gpulease_of[2]):
            own = next((each for each in _flat(args) if isinstance(each, cls)), None)
            raise refusal("this value" if own is None else own.gpulease_of[0])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def __repr__(self, **_: Any) -> str:
        """Return all but the values."""
        return f"<{tuple(self.shape)}, {self.dtype}: the values are on the GPU>"

    def __format__(self, _spec: str) -> str:
        """Return the same."""
        return repr(self)


def _flat(args: Any) -> Any:
    for each in args:
        if isinstance(each, tuple | list):
            yield from _flat(each)
        else:
            yield each


def stand_in(of: tuple[str, Any, bool], row: Any, requires_grad: bool) -> ValuelessTensor:
    """Return what stands for a tensor of this layout; ``of`` is as its attribute is."""
    dtype, size, stride = row
    empty = torch.empty_strided(size, stride, dtype=dtype, device="meta")
    made: ValuelessTensor = torch.Tensor._make_subclass(ValuelessTensor, empty, requires_grad)
    made.gpulease_of = of
    if issubclass(of[1], torch.nn.Parameter):
        made._is_param = True  # isinstance looks at it
    return made


def fill(made: torch.Tensor, state: tuple[torch.Tensor | None]) -> None:
    """Give what stands for a leaf what stands for its gradient."""
    with torch._C.DisableTorchFunctionSubclass():
        made.grad = state[0]


def way(kind: type, usual: Reduce | None) -> Reduce | None:
    """Return how tensors of a class are reduced where large values are left out."""
    if not issubclass(kind, torch.Tensor):
        return None

    def reduce(pickler: Any, tensor: torch.Tensor) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if is_left_out(tensor):
                has_node = commit.node_of(tensor) is not None
                of = pickler.met.structure_of, type(tensor), has_node
                row = tensor.dtype, tuple(tensor.size()), tensor.stride()
                made = getattr(tensor, "gpulease_of", of), row, tensor.requires_grad
                grad = None if has_node else tensor.grad
                return stand_in, made, (grad,), None, None, fill
        return pickler.as_usual(tensor, kind, usual)

    return reduce


def is_left_out(tensor: torch.Tensor) -> bool:
    """Say whether a tensor's values are too large to come, or are not here themselves."""
    if isinstance(tensor, ValuelessTensor):
        return True
    return bool(is_plain(tensor) and tensor.untyped_storage().nbytes() >= SMALL)
