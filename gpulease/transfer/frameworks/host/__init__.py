"""Values of CuPy and cuDF on their way in: theirs where there is a GPU, numpy's and pandas' else.

Owns that choice.  ``arrays`` and ``frames`` have the classes by which such a value is known again
where there is no GPU, so that it is CuPy's or cuDF's when it is back on one.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from typing import Any

from gpulease.sides.libraries import library
from gpulease.transfer.frameworks.base import Stage, staged
from gpulease.transfer_next.refuse import RefusedError

_SHARED = "memory that another array shows, too (a copy() of one of them travels)"


def usable(package: str) -> Any:
    """Return a package of NVIDIA's, imported; None where it is not installed or has no GPU."""
    return _imported(package) if importlib.util.find_spec(package) is not None else None


@cache
def _imported(package: str) -> Any:
    try:
        for each in {"cupy", package}:
            importlib.import_module(each)
        found, cupy = library(package), library("cupy")
        return found if cupy is not None and cupy.cuda.runtime.getDeviceCount() else None
    except Exception:  # noqa: BLE001 - without a driver it fails as each version likes
        return None


@staged
def array(stage: Stage, oid: str, shape: tuple[int, ...], dtype: Any, order: Any) -> Any:
    """Return the array of this side, or one whose values come at the commit."""
    cupy = usable("cupy")
    if cupy is not None:
        kind, empty = cupy.ndarray, cupy.empty
    else:
        from . import arrays

        kind, empty = arrays.HostArray, arrays.empty
    found = stage.live(oid)
    if type(found) is not kind or (found.shape, found.dtype) != (shape, dtype):
        found = empty(shape, dtype, order)
    return stage.make(oid, found)


def frame(made: str, values: Any) -> Any:
    """Return a frame, series or index: ``made`` is the name of its class, ``values`` pandas'."""
    cudf = usable("cudf")
    if cudf is not None:
        return cudf.from_pandas(values)
    from . import frames

    return frames.host(made, values)


def sized(obj: Any) -> list[tuple[int, int]]:
    """Return a span as long as a frame or series is large.

    Where its columns lie is nobody's to know: this span is no memory, and no other object's.
    """
    size = obj.memory_usage()
    begin = -(id(obj) << 64)
    return [(begin, begin + int(size if isinstance(size, int) else size.sum()))]


def refuse_shared(spans: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    """Raise RefusedError where arrays show the same memory, each other's or one of ``others``."""
    ends = {True: 0, False: 0}
    tagged = [(low, high, True) for low, high in spans] + [(*span, False) for span in others]
    for low, high, ours in sorted(tagged):
        if low < ends[True] or (ours and low < ends[False]):
            raise RefusedError(_SHARED)
        ends[ours] = max(ends[ours], high)
