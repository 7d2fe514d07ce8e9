"""CuPy's arrays where there is no GPU: numpy's, of a class of their own.

What is computed from one is numpy's own, as it is for CUDA tensors of torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulease.transfer.arrays import order_of
from gpulease.transfer.frameworks.base import Aside, Inside, Packing, Stage
from gpulease.transfer_next.addresses import byte_bounds

from . import array, refuse_shared


class HostArray(np.ndarray):
    """The values of a CuPy array, in the notebook."""

    _gpulease_hosted = "cupy"

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return what was computed as numpy's own."""
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Be pickled into a file as numpy's own."""
        return np.asarray(self).__reduce_ex__(protocol)

    def get(self, *_: Any, **__: Any) -> Any:
        """Return the values, as CuPy's arrays do."""
        return np.array(self)


def empty(shape: tuple[int, ...], dtype: Any, order: Any) -> HostArray:
    """Return an array of any elements."""
    return np.empty(shape, dtype, order=order).view(HostArray)


class _HostArrays(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return kind is HostArray

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside([], [byte_bounds(obj)])

    def prepare(self, claimed: list[Any], packing: Packing) -> None:
        refuse_shared(_spans(claimed), _spans(packing.arrays))

    def reduce(self, obj: Any, packing: Packing) -> Any:
        return array, (packing.lasting_oid(obj), obj.shape, obj.dtype, order_of(obj))

    def content(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return np.array(obj, order=order_of(obj))

    def apply(self, pairs: list[tuple[Any, Any]], stage: Stage) -> None:  # noqa: ARG002
        for obj, values in pairs:
            np.asarray(obj)[...] = values


FRAMEWORK = _HostArrays()


def _spans(arrays: list[Any]) -> list[tuple[int, int]]:
    return [byte_bounds(each) for each in arrays if each.size and each.itemsize]
