"""What libraries enter for their own classes: how an object is taken apart and put together.

Each library has a room, a module that is imported once the library is.  It enters two functions a
kind: one takes an object apart and names the other one, which puts it together on the other side.
Packages declare rooms of their own as entry points.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import logging
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpulease.sides.libraries import package_of, whole_library

from .refuse import RefusedError

#: Library -> the module that enters what is its own here.
ROOMS = {
    "accelerate": "gpulease.transfer.accelerate",
    "ipywidgets": "gpulease.transfer.widgets",
    "jax": "gpulease.transfer.jax",
    "torch": "gpulease.transfer.torch",
    "tqdm": "gpulease.transfer.progress_bars",
}
#: The entry points of other packages: library, and the module that enters what is its own.
GROUP = "gpulease.libraries"

#: Takes the pickler and an object; returns what ``reducer_override`` may return.
Reduce = Callable[[Any, Any], Any]

log = logging.getLogger(__name__)
#: Libraries whose rooms were opened, or tried to be.
_opened: set[str] = set()
#: Those of which ours does not open.
_unknown: set[str] = set()
_by_class: dict[type, Reduce] = {}
_lasting: list[type] = []
_shown: list[type] = []
_raw: list[Callable[[type], bool]] = []
_values: set[type] = set()
_frozen: set[type] = set()
_in_order: dict[type, Callable[[Any], bool]] = {}
#: The way of each class that was asked for.
_known: weakref.WeakKeyDictionary[type, Reduce | None] = weakref.WeakKeyDictionary()


#: Asked for each array: what shows it, where its memory is the library's.
arrays: list[Reduce] = []
#: Called with what a survey met and all its objects, once it is packed; return the ids of those
#: that are reduced in another way from now on.
after_packing: list[Callable[[Any, Iterator[Any]], set[int]]] = []


@dataclass(frozen=True)
class Device:
    """A library's devices, for a message where one is full."""

    #: Returns the bytes in use, where an error says that there is no room; else None.
    used: Callable[[BaseException], int | None]
    #: Returns the bytes that an object itself has there, by address.
    use_of: Callable[[Any], dict[int, int]]


devices: list[Device] = []
#: Asked for a class of which large values are left out (see ``valueless``); with the usual way.
valueless: list[Callable[[type, Reduce | None], Reduce | None]] = []


#: Asked for each class: how it was entered in a library's own register, None where it was not;
#: and what enters one in this way: one that is there already stays as it is.
registers: list[tuple[Callable[[type], Any], Callable[[type, Any], None]]] = []


def entries_of(cls: type) -> list[tuple[Callable[[type, Any], None], Any]]:
    """Return what enters a class where it was entered, and how."""
    found = ((enter_class, entry_of(cls)) for entry_of, enter_class in registers)
    return [(enter_class, entry) for enter_class, entry in found if entry is not None]


def enter(
    by_class: Mapping[type, Reduce],
    *,
    raw: Callable[[type], bool] = lambda _kind: False,
    lasting: Iterable[type] = (),
    shown: Iterable[type] = (),
    values: Iterable[type] = (),
    frozen: Iterable[type] = (),
    in_order: Mapping[type, Callable[[Any], bool]] = types.MappingProxyType({}),
) -> None:
    """Enter the kinds of a library; a subclass has the way of its nearest base.

    Objects of classes that ``raw`` is said of are their attributes.  Of each object of a
    ``lasting`` class there is one on each side for good, and what is in it is written into it; of
    each of a ``shown`` class, too, which its library holds as long as the page shows it.
    Which of several equal ``values`` a name has cannot be seen.  Objects of ``frozen`` classes
    never change: what holds one may go on holding the one before.  What is said ``in_order`` both
    sides pack into the same bytes; where that is not so, it only travels once more.
    """
    _by_class.update(by_class)
    _raw.append(raw)
    _lasting.extend(lasting)
    _shown.extend(shown)
    _values.update(values)
    _frozen.update(frozen)
    _in_order.update(in_order)
    _known.clear()


@functools.cache
def rooms() -> Mapping[str, str]:
    """Return by library the module of its room; ours come before those of other packages."""
    others = importlib.metadata.entry_points(group=GROUP)
    return {each.name: each.value for each in others} | ROOMS


def open_rooms() -> None:
    """Import the rooms of all libraries that are imported by now."""
    for name in rooms():
        if name not in _opened and whole_library(name) is not None:
            open_room(name)


def open_room(name: str) -> None:
    """Import the room of a library that is imported; log it where that fails."""
    if name in _opened:
        return
    _opened.add(name)
    try:
        importlib.import_module(rooms()[name])
    except Exception:
        log.exception("the room of %s (%s) does not open", name, rooms()[name])
        if name in ROOMS:
            # Another version of the library: its objects stay by name, and no cell is stopped.
            _unknown.add(name)
            _known.clear()


def of(kind: type) -> Reduce | None:
    """Return the way of a class, None where no library has entered one."""
    if kind not in _known:
        packages = {package_of(base) for base in kind.__mro__}
        found = next((_by_class[base] for base in kind.__mro__ if base in _by_class), None)
        _known[kind] = found if packages.isdisjoint(_unknown) else _refuse
    return _known[kind]


def _refuse(_pickler: Any, obj: Any) -> Any:
    raise RefusedError("an object of a library in a version that gpulease does not know", obj)


def is_raw(kind: type) -> bool:
    """Say whether objects of a class are their attributes, whatever it says of pickling."""
    return any(says(kind) for says in _raw)


def is_lasting(kind: type) -> bool:
    """Say whether each side has one object for good of each of a class."""
    return issubclass(kind, (*_lasting, *_shown))


def is_followed(kind: type) -> bool:
    """Say whether it can be told which objects of a lasting class their variables have left."""
    return issubclass(kind, tuple(_lasting))


def any_followed() -> bool:
    """Say whether a library that is imported has such a class."""
    return bool(_lasting)


def may_be_held(kind: type) -> bool:
    """Say whether it does not matter that something outside holds an object of a class."""
    return kind in _frozen or is_lasting(kind)


def in_order(kind: type) -> Callable[[Any], bool] | None:
    """Return what says of objects of a class whether both sides pack them into the same bytes."""
    if kind in _values:
        return lambda _obj: True
    return next((_in_order[base] for base in kind.__mro__ if base in _in_order), None)


def is_value(kind: type) -> bool:
    """Say whether equal objects of a class are as good as the same one."""
    return kind in _values
