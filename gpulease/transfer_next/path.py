"""The way from a name to what blocks it: ``model.callbacks[2]._lock``.

The search reads attributes' dictionaries and slots, items of builtin containers and cells of
functions; it runs no code of the values.
"""

from __future__ import annotations

import contextlib
import gc
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpulease.sides.looks import is_a

from .refuse import is_dead, refused_kind

#: So many objects are looked at: a longer search would take longer than it is worth.
_LIMIT = 20_000
_CUT = (type, types.ModuleType)
#: What stands for a step that has no spelling.
_UNKNOWN = "(...)"
_LONGEST_KEY = 40
#: What a way begins with.
_NAME = re.compile(r"\w*")


def blocker(values: Mapping[str, Any], wanted: Callable[[Any], bool]) -> str | None:
    """Return what ``wanted`` finds that never moves and where it is, in words; None if nothing."""
    found = _search(values, wanted)
    if found is None:
        return None
    where, obj = found
    return _said(refused_kind(obj) or "", where, values)


def located(kind: str, values: Mapping[str, Any], obj: Any) -> str:
    """Return ``kind`` with the way to ``obj``, where it is found."""
    if obj is None:
        return kind
    found = _search(values, lambda each: each is obj)
    return _said(kind, found[0], values) if found is not None else kind


def way_to(values: Mapping[str, Any], obj: Any) -> str:
    """Return how to get to ``obj``, "" where that is not found or has no spelling."""
    found = _search(values, lambda each: each is obj)
    return found[0] if found is not None and _UNKNOWN not in found[0] else ""


def name_of(values: Mapping[str, Any], obj: Any) -> str:
    """Return a name that leads to ``obj``, however far, "" where none is found."""
    found = _search(values, lambda each: each is obj)
    return _NAME.match(found[0])[0] if found is not None else ""  # type: ignore[index]


def _said(kind: str, where: str, values: Mapping[str, Any]) -> str:
    return kind if where in values or _UNKNOWN in where else f"{kind} ({where})"


def _search(values: Mapping[str, Any], wanted: Callable[[Any], bool]) -> tuple[str, Any] | None:
    """Return the shortest way, breadth first."""
    seen: set[int] = set()
    frontier = list(values.items())
    while frontier and len(seen) < _LIMIT:
        following: list[tuple[str, Any]] = []
        for where, obj in frontier:
            if id(obj) in seen or is_dead(obj):
                continue
            seen.add(id(obj))
            with contextlib.suppress(Exception):  # a value may raise anything when asked
                if is_a(obj, _CUT):
                    continue
                if wanted(obj):
                    return where, obj
                if not is_a(obj, types.FrameType):
                    following += _steps(where, obj)
        frontier = following
    return None


def _steps(where: str, obj: Any) -> Iterator[tuple[str, Any]]:
    known: set[int] = set()
    for label, found in _spelled(obj):
        known.add(id(found))
        yield where + label, found
    if is_a(obj, types.FunctionType):
        return
    for found in gc.get_referents(obj):
        if id(found) not in known and found is not getattr(type(obj), "__mro__", None):
            own = type(found) is dict and known.issuperset(map(id, found.values()))
            if not own:
                yield where + _UNKNOWN, found


def _spelled(obj: Any) -> Iterator[tuple[str, Any]]:
    if is_a(obj, types.FunctionType):
        yield from _cells(obj)
        return
    if is_a(obj, dict):
        for key, value in list(dict.items(obj)):
            text = repr(key) if is_a(key, str | int) else type(key).__name__
            yield f"[{text[:_LONGEST_KEY]}]", value
    elif is_a(obj, (list, tuple)) and len(gc.get_referents(obj)) >= len(obj):
        # Of an iterator's tuple, or a parser's list, places may be empty: to ask for one would end
        # the process.
        kind: Any = list if is_a(obj, list) else tuple
        for index, value in enumerate(kind.__iter__(obj)):
            yield f"[{index}]", value
    yield from _attributes(obj)


def _cells(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # not bound yet
            yield f"'s {name}", cell.cell_contents


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    try:
        space = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        space = None
    if type(space) is dict:
        yield from ((f".{name}", value) for name, value in list(space.items()))
    for base in type(obj).__mro__:
        if not base.__flags__ & (1 << 9):
            continue  # made by C code: what it has for itself has no spelling
        for name, slot in list(vars(base).items()):
            if is_a(slot, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # not set
                    yield f".{name}", slot.__get__(obj)
