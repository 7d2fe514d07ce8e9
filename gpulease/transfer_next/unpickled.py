"""Objects of compiled types whose own way of being pickled is missing, or gives another type."""

from __future__ import annotations

import array
import collections
import functools
import gc
import itertools
import re
import struct
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from gpulease.sides.libraries import library

from . import matches, readers

_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_KEY: type = type(functools.cmp_to_key(lambda _one, _other: 0))


class _Empty:
    def __getitem__(self, _index: int) -> Any:
        raise IndexError


#: Iterators of which one at its end is pickled as one over an empty list or tuple.
_ITERATORS: dict[str, Callable[[], Iterator[Any]]] = {
    "array": lambda: iter(array.array("b")),
    "bytearray": lambda: iter(bytearray()),
    "bytes": lambda: iter(b""),
    "callable": lambda: iter(int, 0),
    "sequence": lambda: iter(_Empty()),
    "reversed list": lambda: reversed([]),
}
_NAMES = {type(make()): name for name, make in _ITERATORS.items()}


def ended(name: str) -> Iterator[Any]:
    """Return an iterator of this kind at its end."""
    made = _ITERATORS[name]()
    for _ in made:
        raise AssertionError(name)
    return made


def wrapped_key(compare: Any, value: Any) -> Any:
    """Return ``value`` as ``cmp_to_key`` wraps it for a sort."""
    return functools.cmp_to_key(compare)(value)


def reduce(obj: Any) -> Any:  # noqa: PLR0911 - one a kind
    """Reduce one of these; NotImplemented for what has a way of its own."""
    kind = type(obj)
    if kind in _VIEWS:
        return dict_view, (gc.get_referents(obj)[0], _VIEWS[kind])
    if kind is types.MappingProxyType:  # of what it shows, not of a copy
        return types.MappingProxyType, (gc.get_referents(obj)[0],)
    if kind is functools.cached_property:
        return cached_property, (obj.func, obj.attrname)
    if kind is re.Match:
        return matches.reduce(obj)
    if kind in _NAMES:
        over = obj.__reduce__()[1]
        is_at_end = len(over) == 1 and type(over[0]) in (tuple, list) and not over[0]
        shows_list = kind is type(reversed([])) and obj.__reduce__()[0] is reversed
        return (ended, (_NAMES[kind],)) if is_at_end and not shows_list else NotImplemented
    if kind is _KEY:
        compare, *value = (part for part in gc.get_referents(obj) if part is not kind)
        return (wrapped_key, (compare, *value)) if value else (functools.cmp_to_key, (compare,))
    if (found := readers.reduce(obj)) is not NotImplemented:
        return found
    return _of_libraries(obj, kind)


def _of_libraries(obj: Any, kind: type) -> Any:
    if kind is struct.Struct:
        return struct.Struct, (obj.format,)
    if kind is super:
        return super, _asked_of(obj)
    drawing = getattr(sys.modules.get("PIL.ImageDraw"), "ImageDraw", None)
    if drawing is not None and kind is drawing:
        return _reduce_drawing(obj)
    numpy = library("numpy")
    return NotImplemented if numpy is None else _of_numpy(obj, kind, numpy)


def _of_numpy(obj: Any, kind: type, numpy: Any) -> Any:
    if kind in (numpy.finfo, numpy.iinfo):
        return kind, (obj.dtype,)
    if kind is numpy.flatiter:
        return flat_from, (obj.base, obj.index)
    if kind is numpy.ufunc:
        made_of = [part for part in gc.get_referents(obj) if callable(part)]
        if made_of:  # by ``frompyfunc``; ``vectorize`` keeps one
            return _from_python, (made_of[0], obj.nin, obj.nout, obj.identity)
    return NotImplemented


def _asked_of(obj: Any) -> tuple[Any, ...]:
    """Return what ``super`` was called with; asked itself, it looks into the base class."""
    read = object.__getattribute__
    of, asked = read(obj, "__thisclass__"), read(obj, "__self__")
    return (of,) if asked is None else (of, asked)


def flat_from(array_: Any, index: int) -> Any:
    """Return ``array_.flat`` that continues at an index."""
    made = array_.flat
    collections.deque(itertools.islice(made, index), maxlen=0)
    return made


def _from_python(function: Any, nin: int, nout: int, identity: Any) -> Any:
    import numpy as np

    return np.frompyfunc(function, nin, nout, identity=identity)


#: What Pillow puts into a drawing by itself when it is made.
_OF_THE_IMAGE = ("im", "draw", "_image", "palette")


def _reduce_drawing(drawing: Any) -> Any:
    """Reduce what draws in an image to the image; not where that has other memory by now."""
    image = vars(drawing).get("_image")
    if image is None or image.im is not drawing.im:
        return NotImplemented
    rest = {name: value for name, value in vars(drawing).items() if name not in _OF_THE_IMAGE}
    return _drawing, (image, drawing.mode), rest


def _drawing(image: Any, mode: str) -> Any:
    from PIL import ImageDraw

    return ImageDraw.ImageDraw(image, mode)


def dict_view(mapping: dict[Any, Any], method: str) -> Any:
    """Return the live view ``keys``, ``values`` or ``items`` of a dictionary."""
    return getattr(mapping, method)()


def cached_property(function: Any, name: str | None) -> Any:
    """Return a cached property (its lock, where it has one, is new)."""
    made: Any = functools.cached_property(function)
    made.attrname = name
    return made
