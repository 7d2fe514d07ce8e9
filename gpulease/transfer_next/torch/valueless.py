"""What stands at home for a tensor whose values are too large to come (see ``valueless``)."""

from __future__ import annotations

from typing import Any

import torch

from gpulease.transfer_next.valueless import SMALL, refusal
from gpulease.transfer_next.ways import Reduce

from .tensors import is_plain

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


def _allowed() -> frozenset[Any]:
    kind = _TENSOR
    getters = (getattr(kind, name).__get__ for name in _LOOKS if hasattr(kind, name))
    methods = (getattr(kind, name) for name in _ASKS if hasattr(kind, name))
    free = (torch.numel, torch.is_floating_point, torch.is_complex, torch.is_tensor)
    return frozenset((*getters, *methods, *free))


_ALLOWED = _allowed()
#: What a tensor of a graph would answer otherwise than what stands for it.
_OF_GRAPHS = frozenset(getattr(_TENSOR, name).__get__ for name in ("is_leaf", "grad", "grad_fn"))


class ValuelessTensor(torch.Tensor):  # type: ignore[misc]
    """Stands at home for a tensor whose values are on the GPU."""

    #: The variables that it belongs to, in words, the class of what it stands for, and whether
    #: that is part of a computation graph.
    gpulease_of: tuple[str, Any, bool]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer what needs no value; raises GPULeaseError for the rest."""
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

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Refuse: there are no values to be written."""
        raise refusal(self.gpulease_of[0])

    def __deepcopy__(self, _memo: Any) -> Any:
        """Refuse likewise."""
        raise refusal(self.gpulease_of[0])


def _flat(args: Any) -> Any:
    for each in args:
        if isinstance(each, tuple | list):
            yield from _flat(each)
        else:
            yield each


def stand_in(
    label: str, kind: Any, row: Any, requires_grad: bool, of_graph: bool
) -> ValuelessTensor:
    """Return what stands for a tensor of class ``kind`` and of this layout."""
    dtype, _, size, stride = row
    empty = torch.empty_strided(size, stride, dtype=dtype, device="meta")
    made: ValuelessTensor = torch.Tensor._make_subclass(ValuelessTensor, empty, requires_grad)
    made.gpulease_of = (label, kind, of_graph)
    if issubclass(kind, torch.nn.Parameter):
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
                grad = tensor.grad if tensor.is_leaf else None
                told = _told(tensor, pickler.met.structure_of)
                return stand_in, told, (grad,), None, None, fill
        return pickler.as_usual(tensor, kind, usual)

    return reduce


def is_left_out(tensor: torch.Tensor) -> bool:
    """Say whether a tensor's values are too large to come, or are not here themselves."""
    if isinstance(tensor, ValuelessTensor):
        return True
    return bool(is_plain(tensor) and tensor.untyped_storage().nbytes() >= SMALL)


def _told(tensor: torch.Tensor, label: str) -> tuple[Any, ...]:
    own = (label, type(tensor), tensor.grad_fn is not None)
    label, kind, of_graph = getattr(tensor, "gpulease_of", own)
    row = (tensor.dtype, tensor.storage_offset(), tuple(tensor.size()), tensor.stride())
    return label, kind, row, tensor.requires_grad, of_graph
