"""CuPy: arrays travel as their values, and are numpy's where there is no GPU (see ``host``)."""

from __future__ import annotations

from typing import Any

import cupy

from gpulease.transfer.arrays import order_of

from .base import Aside, Inside, Packing, Stage
from .host import array, refuse_shared


class _CuPy(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return kind is cupy.ndarray

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside([], _spans([obj]))

    def prepare(self, claimed: list[Any], packing: Packing) -> None:  # noqa: ARG002
        refuse_shared(_spans(claimed), [])

    def reduce(self, obj: Any, packing: Packing) -> Any:
        return array, (packing.lasting_oid(obj), obj.shape, obj.dtype, order_of(obj))

    def content(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return obj.get(order=order_of(obj))

    def apply(self, pairs: list[tuple[Any, Any]], stage: Stage) -> None:  # noqa: ARG002
        for obj, values in pairs:
            obj[...] = cupy.asarray(values)

    def use_of(self, obj: Any) -> dict[int, int]:
        """See ``base.OnDevice``."""
        return {obj.data.ptr: obj.nbytes}

    def used(self, error: BaseException) -> int | None:
        """See ``base.OnDevice``."""
        failed = isinstance(error, cupy.cuda.memory.OutOfMemoryError)
        return cupy.get_default_memory_pool().used_bytes() if failed else None


FRAMEWORK = _CuPy()


def _spans(arrays: list[Any]) -> list[tuple[int, int]]:
    """Return first and one past the last address of each, on the device."""
    return [tuple(cupy.byte_bounds(each)) for each in arrays if each.nbytes]
