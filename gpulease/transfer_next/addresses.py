"""Where the memory of arrays lies."""

from __future__ import annotations

import ctypes
from typing import Any


def over(address: int, size: int, keep: Any) -> Any:
    """Return an array over memory that ``keep`` keeps."""
    raw: Any = (ctypes.c_ubyte * size).from_address(address)
    raw._gpulease_keep = keep  # noqa: SLF001
    import numpy  # an image may be there without it

    return numpy.frombuffer(raw, "u1")


def byte_bounds(view: Any) -> tuple[int, int]:
    """Return first and one past the last address of an array's elements."""
    low = high = int(view.__array_interface__["data"][0])
    for extent, stride in zip(view.shape, view.strides, strict=True):
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return low, high + int(view.itemsize)
