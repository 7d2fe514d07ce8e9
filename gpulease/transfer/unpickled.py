"""Objects of compiled types whose own way of being pickled is missing, or gives another type."""

from __future__ import annotations

import array
import collections
import csv
import functools
import gc
import itertools
import operator
import random
import re
import struct
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from gpulease.sides.libraries import CSV_DIALECT, library

from . import anatomy
from .refuse import RefusedError

_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}


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


def reduce(obj: Any) -> Any:  # noqa: PLR0911 - one a kind
    """Reduce one of these; NotImplemented for what has a way of its own."""
    kind = type(obj)
    if kind in _VIEWS:
        return dict_view, (gc.get_referents(obj)[0], _VIEWS[kind])
    if kind is types.MappingProxyType:  # of what it shows, not of a copy
        shown = gc.get_referents(obj)[0]
        cls = anatomy.class_with(shown)
        return (types.MappingProxyType, (shown,)) if cls is None else (vars, (cls,))
    if kind is types.GetSetDescriptorType and obj.__name__ == "__dict__":  # which Python asks
        return operator.getitem, (vars(obj.__objclass__), obj.__name__)
    if kind is functools.cached_property:
        return cached_property, (obj.func, obj.attrname)
    if kind is re.Match:
        return _reduce_match(obj)
    if kind in _NAMES:
        over = obj.__reduce__()[1]
        is_at_end = len(over) == 1 and type(over[0]) in (tuple, list) and not over[0]
        shows_list = kind is type(reversed([])) and obj.__reduce__()[0] is reversed
        return (ended, (_NAMES[kind],)) if is_at_end and not shows_list else NotImplemented
    if (found := _reduce_known(obj)) is not NotImplemented:
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


#: Of a text with more matches before it, a match is not looked for again.
_MOST = 1_000


def _reduce_match(match: re.Match[Any]) -> Any:
    """Reduce a match to how it is found again; raises RefusedError where it is not."""
    arguments = (match.re, match.string, match.pos, match.endpos, match.regs)
    if not any(_candidates(*arguments)):
        raise RefusedError("a match that is not found again", match)
    return found_again, arguments


def found_again(pattern: Any, text: Any, pos: int, endpos: int, regs: Any) -> Any:
    """Return the match of these groups' places."""
    return next(_candidates(pattern, text, pos, endpos, regs))


def _candidates(
    pattern: re.Pattern[Any], text: Any, pos: int, endpos: int, regs: Any
) -> Iterator[re.Match[Any]]:
    ways = (pattern.fullmatch(text, pos, endpos), pattern.match(text, pos, endpos))
    later = itertools.islice(pattern.finditer(text, pos, endpos), _MOST)
    upto = itertools.takewhile(lambda found: found.start() <= regs[0][0], later)
    for found in itertools.chain(ways, upto):
        if found is not None and found.regs == regs:
            yield found


_READER: type = type(csv.reader([]))
#: What ``finditer`` runs on: nobody can see where it is.
_SEARCH: type = type(re.compile("").scanner(""))  # type: ignore[attr-defined]


class Resumed:
    """An iterator that gives ``first``, from its end on, and then what ``rest`` gives."""

    def __init__(self, first: list[Any], rest: Iterator[Any]) -> None:
        self.first = first
        self.rest = rest

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.first.pop() if self.first else next(self.rest)


def _reduce_known(obj: Any) -> Any:
    """Reduce one of these; NotImplemented for what has a way of its own."""
    way = _WAYS.get(type(obj))
    if way is not None:
        return way(obj)
    sqlite = library("sqlite3")
    if sqlite is not None and type(obj) is sqlite.Row:
        return sqlite_row, (tuple(obj.keys()), tuple(obj))
    return NotImplemented


def _refuse_search(search: Any) -> Any:
    words = "a running search (make a list where it runs: list(re.finditer(...)))"
    raise RefusedError(words, search)


def _reduce_reader(obj: Any) -> Any:
    source = next(p for p in gc.get_referents(obj) if type(p) not in (list, type(obj.dialect)))
    if type(source) is Resumed and not source.first:  # it is not to grow with each journey
        source = source.rest
    dialect = {name: getattr(obj.dialect, name) for name in CSV_DIALECT}
    return reader_over, (source, obj.line_num, dialect)


def reader_over(source: Any, line: int, dialect: dict[str, Any]) -> Any:
    """Return a reader that has read this many lines: it cannot be told, so it reads empty ones."""
    made = csv.reader(Resumed([""] * line, source) if line else source, **dialect)
    for _ in range(line):
        next(made)
    return made


def sqlite_row(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """Return a row of a result with these columns."""
    import sqlite3

    return sqlite3.Row(_cursor(names), values)


@functools.lru_cache(maxsize=8)
def _cursor(names: tuple[str, ...]) -> Any:
    """Return a cursor of which only the names of its columns count."""
    import sqlite3

    columns = ", ".join('NULL AS "' + name.replace('"', '""') + '"' for name in names)
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    return connection.execute(f"SELECT {columns}")


_WAYS: dict[type, Callable[[Any], Any]] = {
    _READER: _reduce_reader,
    _SEARCH: _refuse_search,
    random.SystemRandom: lambda _obj: (random.SystemRandom, ()),
}
