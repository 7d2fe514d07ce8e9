"""Objects that show an array's memory without being arrays.

These are of pandas, Arrow and polars, a row of a structured array, an image over an array.  On the
other side they are made over the same memory again.  Where nothing else shows that memory they
travel in their own way.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import operator
import sys
from collections.abc import Callable, Collection
from typing import Any

from gpulease.sides.libraries import library, package_of

Shown = Callable[[Any], bool]
#: How much more the buffers of an Arrow array may have than what is in use.
_SLACK = 64


def is_face(kind: type) -> bool:
    """Say whether objects of this type may show an array's memory (pandas' and Arrow's apart)."""
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return is_row(kind) or _is_flat(kind) or (image is not None and issubclass(kind, image))


def memory_of(obj: Any) -> Any:
    """Return an array over the memory that a face shows; None where it is its own."""
    if is_row(type(obj)):
        import numpy

        if obj.dtype.hasobject or not obj.dtype.itemsize:
            return None
        address = numpy.frombuffer(obj, "u1").__array_interface__["data"][0]
        memory = over(address, obj.dtype.itemsize, obj)
        memory.flags.writeable = obj.flags.writeable
        return memory
    return obj.base if _is_flat(type(obj)) else _pixels(obj)


def is_row(kind: type) -> bool:
    """Say whether objects of this type are rows of structured arrays."""
    row = getattr(library("numpy"), "void", None)  # an image may be there without numpy
    return row is not None and issubclass(kind, row)


def _is_flat(kind: type) -> bool:
    """Say whether this is numpy's iterator over an array, which the collector sees nothing of."""
    return kind is getattr(library("numpy"), "flatiter", None)


def _pixels(image: Any) -> Any:
    """Return the memory of an image that was made over a buffer of somebody else's."""
    if not image.__dict__.get("_readonly") or image.__dict__.get("_im") is None:
        return None
    try:
        _, capsule = image.__arrow_c_array__()
    except (AttributeError, ValueError):  # an older Pillow, or pixels in several pieces
        return None
    found = _Arrow.from_address(_address(capsule, b"arrow_array"))
    while found.n_children:
        found = found.children[0].contents
    bands = len(image.getbands())
    return over(found.buffers[1], image.width * image.height * max(bands, _width(image)), image)


def _width(image: Any) -> int:
    return 4 if image.mode in ("I", "F") else 2 if image.mode.startswith("I;16") else 1


class _Arrow(ctypes.Structure):
    """The part of Arrow's C interface that says where the pixels are."""


_Arrow._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64), ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Arrow))),
]  # fmt: skip
_address: Any = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def arrays_of_pandas(obj: Any) -> list[Any]:
    """Return the numpy arrays that a data frame, a series or an index consists of."""
    manager = getattr(obj, "_mgr", None)
    if manager is None:
        return [] if _is_range(obj) else _arrays_in(getattr(obj, "_data", None))
    held = [block.values for block in getattr(manager, "blocks", ())]
    held += [axis for axis in manager.axes if not _is_range(axis)]
    return [array for values in held for array in _arrays_in(values)]


def of_one_frame(kinds: Collection[type], of_kinds: Callable[[set[type]], list[Any]]) -> set[type]:
    """Return the types whose objects both sides pack into the same bytes, where one frame has them.

    Two that show one memory share slices that they no longer share where they were loaded.
    """
    of_pandas = {kind for kind in kinds if package_of(kind) == "pandas"}
    managers = {kind for kind in of_pandas if kind.__name__.endswith("Manager")}
    if not of_pandas or len(of_kinds(managers)) > 1:
        return set()
    compiled = {kind for kind in kinds if kind.__name__ == "cython_function_or_method"}
    excepted = {kind for kind in of_pandas if kind.__name__.startswith(("Sparse", "Interval"))}
    return of_pandas - excepted | compiled | {slice}


def _is_range(index: Any) -> bool:
    """Say whether an index is three numbers: it would make an array where it is asked for one."""
    return type(index).__name__ == "RangeIndex"


def _arrays_in(values: Any) -> list[Any]:
    """Return the arrays of one column's values, whatever pandas keeps them in."""
    numpy = sys.modules["numpy"]
    parts = [values, *(getattr(values, name, None) for name in ("_ndarray", "_data", "_mask"))]
    return [part for part in parts if isinstance(part, numpy.ndarray)]


def is_arrow(kind: type) -> bool:
    """Say whether a type is pyarrow's."""
    return package_of(kind) == "pyarrow"


def arrays_of_arrow(obj: Any) -> list[Any]:
    """Return arrays over the memory that an object of pyarrow consists of."""
    if library("numpy") is None:  # then no array shows it, either
        return []
    if type(obj).__name__ == "Buffer":
        return [over(obj.address, obj.size, obj)] if obj.size and obj.is_cpu else []
    parts = getattr(obj, "columns", None) or getattr(obj, "chunks", None)
    if not isinstance(parts, list):
        parts = [b for b in obj.buffers() if b is not None] if hasattr(obj, "buffers") else []
    return [array for part in parts for array in arrays_of_arrow(part)]


def is_polars(kind: type) -> bool:
    """Say whether a type is a series or a frame of polars."""
    package = package_of(kind)
    return package == "polars" and kind.__name__ in ("Series", "DataFrame")


def arrays_of_polars(obj: Any) -> list[Any]:
    """Return arrays over the numbers that a series or a frame consists of.

    polars takes an array of numbers as it is, and sees what is written to it.
    """
    columns = obj.get_columns() if hasattr(obj, "get_columns") else [obj]
    return [memory for column in columns if (memory := _numbers(column)) is not None]


def _numbers(series: Any) -> Any:
    """Return the memory of a series; None where it is in several pieces, or no plain numbers."""
    if library("numpy") is None or not series.dtype.is_numeric() or not len(series):
        return None
    try:
        view = series.to_numpy(allow_copy=False)
    except (RuntimeError, ValueError, TypeError):  # there are gaps in it
        return None
    if view.dtype.kind not in "iuf":
        return None
    return over(view.__array_interface__["data"][0], view.nbytes, view)


def inside_pandas(frame: Any) -> tuple[int, list[Any]]:
    """Return the bytes of a pandas object, and the values in it that are to be looked into.

    Its blocks are never an alias that a user can see (copy-on-write); an index is immutable, and so
    are its keys.
    """
    usage = frame.memory_usage(deep=False)
    nbytes = int(usage.sum() if hasattr(usage, "sum") else usage)
    if not hasattr(frame, "attrs"):
        return nbytes, []
    columns = [frame] if frame.ndim == 1 else [frame.iloc[:, i] for i in range(frame.shape[1])]
    return nbytes, [frame.attrs, *(v for c in columns if c.dtype == object for v in c.array)]


def reduce(obj: Any, shown: Shown) -> Any:  # noqa: PLR0911 - one a kind
    """Reduce an object that shows memory; NotImplemented where its own way is right.

    ``shown`` says whether something else shows an array's memory, too.
    """
    kind = type(obj)
    if package_of(kind) == "pandas":
        return _reduce_pandas(obj, shown)
    if is_arrow(kind) and kind.__name__ == "Buffer":
        arrays = arrays_of_arrow(obj)
        return (arrow_buffer, (arrays[0],)) if any(map(shown, arrays)) else NotImplemented
    if is_arrow(kind) and marks_no_nulls(obj):
        return arrow_array, (obj.type, len(obj), obj.buffers())
    if is_polars(kind):
        return _reduce_polars(obj, shown)
    if not is_face(kind):
        return NotImplemented
    memory = memory_of(obj)
    if is_row(kind):  # in numpy's way it could not be written to
        return NotImplemented if memory is None else (row, (memory, obj.dtype, kind))
    if memory is None or not shown(memory):
        return NotImplemented
    palette = obj.getpalette() if obj.mode in ("P", "PA") else None
    return image, (memory, obj.mode, obj.size, dict(obj.info), palette)


def _reduce_polars(obj: Any, shown: Shown) -> Any:
    """Reduce a series over memory of an array, and a frame with such columns."""
    arrays = arrays_of_polars(obj)
    if not any(map(shown, arrays)):
        return NotImplemented
    if hasattr(obj, "get_columns"):
        return type(obj), (obj.get_columns(),)
    dtype = obj.to_numpy(allow_copy=False).dtype
    return series_over, (arrays[0], dtype, obj.name, type(obj))


def _reduce_pandas(obj: Any, shown: Shown) -> Any:
    """Reduce a block or an index over memory of an array, with who else is copied on write."""
    if type(obj).__name__ == "BlockValuesRefs":
        return no_references, ()
    if type(obj).__name__ == "SingleBlockManager":  # in its own way it takes its block apart
        shared = any(map(shown, _arrays_in(obj.blocks[0].values)))
        return (type(obj), (obj.blocks[0], obj.axes[0])) if shared else NotImplemented
    if hasattr(obj, "mgr_locs"):
        arrays, references = _arrays_in(obj.values), getattr(obj, "refs", None)
    elif hasattr(obj, "_engine_type"):
        arrays, references = arrays_of_pandas(obj), getattr(obj, "_references", None)
    else:
        return NotImplemented
    if not any(map(shown, arrays)):
        return NotImplemented
    maker, args, *_ = obj.__reduce__()
    return referring, (maker, args, references)


def reduce_part(obj: Any, framed: Callable[..., Any]) -> Any:
    """Reduce a part of a frame, with what stands for each array that it names (``framed``)."""
    reduced = obj.__reduce_ex__(5)
    if isinstance(reduced, str):
        return reduced
    # Blocks copy on write what they share; others have an array once.
    has_own = hasattr(obj, "mgr_locs") or type(obj).__name__.endswith("Manager")
    stand = functools.partial(framed, block=id(obj) if has_own else 0)
    parts: list[Any] = [*reduced, None] if len(reduced) == 2 else list(reduced)
    made, args, state, *rest = parts
    if type(state) is dict:
        for key, value in list(state.items()):
            # The list ``_metadata`` of its class, say: else all frames would share it.
            if type(value) is list and value is getattr(type(obj), key, None):
                del state[key]
        state.update(own_column(obj))
    attrs = state.get("attrs") if type(state) is dict else None
    state = replaced(state, stand)
    if attrs is not None:  # pandas makes a copy of it; set last, this is the very one
        state = {**state, "attrs": attrs, "_attrs": attrs}
    return (made, replaced(args, stand), state, *rest)


def replaced(value: Any, replace: Callable[[Any], Any], depth: int = 3) -> Any:
    """Return a part of what an object is reduced to, with something else for arrays in it."""
    if type(value) is library("numpy").ndarray:
        return replace(value)
    if not depth or type(value) not in (tuple, list, dict):
        return value
    parts = list(value.values() if type(value) is dict else value)
    new = [replaced(each, replace, depth - 1) for each in parts]
    if all(map(operator.is_, parts, new)):
        return value
    return dict(zip(value, new, strict=True)) if type(value) is dict else type(value)(new)


# ---- made over memory again


def row(memory: Any, dtype: Any, kind: Any) -> Any:
    """Return a row of a structured array over its memory."""
    import numpy

    return numpy.ndarray((), numpy.dtype((kind, dtype)), buffer=memory)[()]


def image(memory: Any, mode: str, size: tuple[int, int], info: Any, palette: Any) -> Any:
    """Return an image over pixels that an array shows, too."""
    from PIL import Image

    out = Image.frombuffer(mode, size, memory, "raw", mode, 0, 1)
    out.info = info
    if palette is not None:
        out.putpalette(palette)
        out.readonly = 1
    return out


def series_over(memory: Any, dtype: Any, name: str, kind: Any) -> Any:
    """Make a series of polars over the memory of an array; raises ValueError where it copies."""
    made = kind(name, memory.view(dtype))
    at = made.to_numpy(allow_copy=False).__array_interface__["data"][0]
    if at != memory.__array_interface__["data"][0]:
        raise ValueError("polars copied the array that a series was made over")
    return made


def marks_no_nulls(obj: Any) -> bool:
    """Say whether an Arrow array has marks for nulls and no null: its own way drops the marks.

    Then pandas shows another size.  What is a part of a larger array goes its own way.
    """
    if not hasattr(obj, "null_count") or not hasattr(obj, "buffers") or obj.null_count:
        return False
    if obj.type.num_fields or obj.offset or not obj.buffers() or obj.buffers()[0] is None:
        return False
    return bool(obj.get_total_buffer_size() <= obj.nbytes + _SLACK)


def own_column(obj: Any) -> dict[str, Any]:
    """Return by name what a column of pandas has of Arrow that its own way drops a part of."""
    kind = getattr(sys.modules.get("pyarrow"), "ChunkedArray", None)
    held = getattr(obj, "__dict__", {}).items()
    columns = {name: value for name, value in held if kind is not None and type(value) is kind}
    return {
        name: value
        for name, value in columns.items()
        if value.num_chunks == 1 and marks_no_nulls(value.chunk(0))
    }


def arrow_array(kind: Any, length: int, buffers: list[Any]) -> Any:
    """Return an Arrow array over these buffers, which has no nulls."""
    # Nulls are to be counted: of an array that is said to have none the marks are dropped.
    return importlib.import_module("pyarrow").Array.from_buffers(kind, length, buffers, -1)


def arrow_buffer(memory: Any) -> Any:
    """Return a buffer of Arrow's over memory that an array shows, too."""
    return importlib.import_module("pyarrow").py_buffer(memory)


def no_references() -> Any:
    """Return pandas' own note of who shares a block, for nobody yet."""
    from pandas._libs.internals import BlockValuesRefs

    return BlockValuesRefs()


def referring(maker: Any, args: tuple[Any, ...], references_: Any) -> Any:
    """Return a pandas block or index that is copied on write beside those of the same note."""
    made = maker(*args)
    if references_ is None:
        return made
    if hasattr(made, "mgr_locs"):
        made.refs = references_
        references_.add_reference(made)
    else:
        made._references = references_  # noqa: SLF001 - pandas has no other way
        references_.add_index_reference(made)
    return made


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
