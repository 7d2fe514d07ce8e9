"""Tensors whose values stay on the GPU for their size: what home shows of them is all but values.

Whatever would read or write a value raises the explained error; so does pickling, for a file
without values would look like one that has them.
"""

from __future__ import annotations

from typing import Any

import torch

from gpulease.transfer.frameworks.away import refusal

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


class AwayTensor(torch.Tensor):  # type: ignore[misc]
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


def stand_in(label: str, kind: Any, row: Any, requires_grad: bool, of_graph: bool) -> AwayTensor:
    """Return what stands for a tensor of class ``kind`` and of this layout."""
    dtype, _, size, stride = row
    empty = torch.empty_strided(size, stride, dtype=dtype, device="meta")
    made: AwayTensor = torch.Tensor._make_subclass(AwayTensor, empty, requires_grad)
    made.gpulease_of = (label, kind, of_graph)
    if issubclass(kind, torch.nn.Parameter):
        made._is_param = True  # isinstance looks at it
    return made
