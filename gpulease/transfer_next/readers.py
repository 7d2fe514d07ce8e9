"""Readers, writers and the like of the standard library, made again over what they read or write.

A reader of an iterator keeps that very iterator, so what it has taken already is put before the
rest (``Resumed``), to be taken again.
"""

from __future__ import annotations

import csv
import functools
import gc
import io
import itertools
import random
import re
import types
from collections.abc import Callable, Iterator
from json import scanner
from typing import Any

from gpulease.sides.libraries import CSV_DIALECT, library

from .refuse import RefusedError

_READER: type = type(csv.reader([]))
_WRITER: type = type(csv.writer(io.StringIO()))
#: What ``finditer`` runs on: nobody can see where it is.
_SEARCH: type = type(re.compile("").scanner(""))  # type: ignore[attr-defined]
_SCANNER_OF_JSON: Any = getattr(scanner, "c_make_scanner", None)
#: What a JSONDecoder tells its scanner.
_ASKED = (
    "strict",
    "object_hook",
    "object_pairs_hook",
    "parse_float",
    "parse_int",
    "parse_constant",
)


class Resumed:
    """An iterator that gives ``first``, from its end on, and then what ``rest`` gives."""

    def __init__(self, first: list[Any], rest: Iterator[Any]) -> None:
        self.first = first
        self.rest = rest

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.first.pop() if self.first else next(self.rest)


def reduce(obj: Any) -> Any:
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


# ---- pairs


def _reduce_pairs(pairs: Any) -> Any:
    """Reduce to the iterator, and the element that the next pair begins with.

    A walk by the collector is all that shows them: first the iterator, then the element.
    """
    held = [part for part in gc.get_referents(pairs) if part is not itertools.pairwise]
    if not held:
        return pairs_of, ([], None)
    return pairs_of, (held[1:], _flat(held[0]))


def pairs_of(first: list[Any], rest: Any) -> Any:
    """Return the pairs of what is left, ``first`` being the element before it, if there was one."""
    if rest is None:
        return itertools.pairwise(())
    return itertools.pairwise(Resumed(first, rest) if first else rest)


def _flat(source: Any) -> Any:
    """Return what a source goes on with: it is not to grow with each journey."""
    return source.rest if type(source) is Resumed and not source.first else source


# ---- csv


def _reduce_reader(reader: Any) -> Any:
    source = next(
        p for p in gc.get_referents(reader) if type(p) not in (list, type(reader.dialect))
    )
    return reader_over, (_flat(source), reader.line_num, _dialect(reader))


def reader_over(source: Any, line: int, dialect: dict[str, Any]) -> Any:
    """Return a reader that has read this many lines: it cannot be told, so it reads empty ones."""
    made = csv.reader(Resumed([""] * line, source) if line else source, **dialect)
    for _ in range(line):
        next(made)
    return made


def _reduce_writer(writer: Any) -> Any:
    write = next(p for p in gc.get_referents(writer) if callable(p) and not isinstance(p, type))
    target: Any = types.SimpleNamespace(write=write)
    if type(write) in _METHODS and write.__name__ == "write":
        target = write.__self__
    if isinstance(target, io.IOBase) and type(target) is not io.StringIO:
        raise RefusedError("a csv writer over an open file", writer)
    return writer_over, (target, _dialect(writer))


def writer_over(target: Any, dialect: dict[str, Any]) -> Any:
    """Return a writer to what is being rebuilt."""
    return csv.writer(target, **dialect)


_METHODS = (types.BuiltinMethodType, types.MethodType)


def _dialect(obj: Any) -> dict[str, Any]:
    return {name: getattr(obj.dialect, name) for name in CSV_DIALECT}


# ---- json and sqlite3


def _reduce_scanner(found: Any) -> Any:
    return json_scanner, ({name: getattr(found, name) for name in _ASKED},)


def json_scanner(asked: dict[str, Any]) -> Any:
    """Return what a JSONDecoder with these settings reads by."""
    return _SCANNER_OF_JSON(types.SimpleNamespace(memo={}, **asked))


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
    itertools.pairwise: _reduce_pairs,
    _READER: _reduce_reader,
    _WRITER: _reduce_writer,
    _SEARCH: _refuse_search,
    _SCANNER_OF_JSON: _reduce_scanner,
    random.SystemRandom: lambda _obj: (random.SystemRandom, ()),
}
