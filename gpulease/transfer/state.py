"""What belongs to the process and not to a variable, one row each."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

from gpulease.sides.state.on_import import when_imported

from . import ways


def _numpy() -> Any:
    return sys.modules.get("numpy.random")


def _get_numpy() -> Any:
    return None if _numpy() is None else _numpy().get_state()


def _set_numpy(state: Any) -> None:
    import numpy.random

    numpy.random.set_state(state)


Row = tuple[Callable[[], Any], Callable[[Any], None]]
#: Name -> how it is read (None: nothing to say), and how it is set.
_ROWS: dict[str, Row] = {
    "random": (random.getstate, random.setstate),
    "numpy.random": (_get_numpy, _set_numpy),
}


#: What came for a library that nothing here has imported yet; names begin with the library's.
_later: dict[str, Any] = {}


def enter(rows: Mapping[str, Row]) -> None:
    """Enter the rows of a library, whose name each of them begins with."""
    _ROWS.update(rows)


def read() -> dict[str, Any]:
    """Return what there is of each row."""
    ways.open_rooms()
    found = {name: get() for name, (get, _) in _ROWS.items()}
    return _later | {name: value for name, value in found.items() if value is not None}


def apply(state: dict[str, Any]) -> None:
    """Set each row as it is on the other side, as soon as its library is imported."""
    for name, value in state.items():
        library = _library_of(name)
        if name in _ROWS and library in sys.modules:
            _ROWS[name][1](value)
            _later.pop(name, None)
        elif name in _ROWS or library in ways.rooms():
            _later[name] = value
            when_imported(library, _settle)


def _library_of(name: str) -> str:
    return name.partition(".")[0]


def _settle() -> None:
    """Set the rows of a library that a cell has just imported, before it uses it."""
    for library in set(map(_library_of, _later)) & sys.modules.keys():
        ways.open_room(library)
    for name in [each for each in _later if each in _ROWS and _library_of(each) in sys.modules]:
        _ROWS[name][1](_later.pop(name))
