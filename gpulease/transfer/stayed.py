"""What stands on one side for an object that stayed on the other one.

Whatever is asked of it raises the sentence that says where the object is and why; so do pickling
and copying it.  It may be held, passed on and compared for identity.  It travels by the object's
id, and where the object lives it is that very object.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import gc
import operator
import re
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NoReturn

from gpulease.errors import GPULeaseError
from gpulease.sides.looks import is_a, name_of_type
from gpulease.sides.names.variables import user_names

from .refuse import is_dead


class Stayed:
    """Stands for the object ``oid`` of the other side, or for one that is gone.

    It has the class of the object where this side has that class, too.
    """

    __slots__ = ("__weakref__", "_gpulease_leaf")
    _gpulease_leaf: Leaf

    def __init__(self, leaf: Leaf) -> None:
        object.__setattr__(self, "_gpulease_leaf", leaf)

    @property
    def __class__(self) -> Any:
        return self._gpulease_leaf.find_class() or Stayed

    @__class__.setter
    def __class__(self, value: Any) -> None:
        _refuse(self)

    def __repr__(self) -> str:
        return f"<{sentence(self).removesuffix('.')}>"

    def __bool__(self) -> bool:
        kind = self._gpulease_leaf.find_class()
        if kind is None or _answers(kind, "__bool__") or _answers(kind, "__len__"):
            _refuse(self)
        return True

    def __getattr__(self, name: str) -> Any:
        kind = self._gpulease_leaf.find_class()
        if name[:2] == "__" and not (kind is not None and _answers(kind, name)):
            raise AttributeError(name)  # a question whether it is of some kind
        _refuse(self)

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse(self)

    def __delattr__(self, name: str) -> None:
        _refuse(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        _refuse(self)


class Leaf:
    """What is known of the object: its id, what it is in words, and where its class is found.

    ``cls`` is a class of the notebook, or module and name.  It is ``gone`` where the side that it
    was on is.
    """

    def __init__(self, oid: str, kind: str, cls: Any, gone: bool) -> None:
        self.oid = oid
        self.kind = kind
        self.cls = cls
        self.gone = gone

    def find_class(self) -> Any:
        """Return the object's class where this side has it, else None."""
        if not isinstance(self.cls, tuple):
            return self.cls
        module, name = self.cls
        try:
            found = operator.attrgetter(name)(sys.modules[module])
        except (KeyError, AttributeError):
            return None
        return found if isinstance(found, type) else None


def class_of(obj: Any) -> Any:
    """Return the class of an object of this side: a notebook's, or else where it is found."""
    kind = type(obj)
    if kind.__module__ == "__main__":
        return kind
    return _UNNAMED.get(kind) or (kind.__module__, kind.__qualname__)


#: Where classes are found whose own name leads nowhere.
_UNNAMED = {
    **{kind: ("types", name) for name, kind in vars(types).items() if isinstance(kind, type)},
    _thread.LockType: ("_thread", "LockType"),
}


def type_name(obj: Any) -> str:
    """Return the name of an object's type; of one of the other side, its type there."""
    if not is_a(obj, Stayed):
        return name_of_type(type(obj))
    leaf = leaf_of(obj)
    found = leaf.find_class()
    return found.__name__ if found is not None else str(leaf.cls[1]).rpartition(".")[2]


def leaf_of(stayed: Stayed) -> Leaf:
    """Return what is known of the object that one stands for."""
    found: Leaf = object.__getattribute__(stayed, "_gpulease_leaf")
    return found


def sentence(stayed: Stayed) -> str:
    """Say what it stands for and where that is."""
    leaf = leaf_of(stayed)
    where = _where(stayed)
    place = "in your notebook" if leaf.oid.startswith("h") else "on the GPU"
    if leaf.gone:
        return f"{where} is gone: it was {leaf.kind} {place}, and nothing there has it any more."
    return f"{where} stayed {place}: {leaf.kind} does not travel."


def _where(stayed: Stayed) -> str:
    found = _search(variables(), lambda each: each is stayed)
    if found is None:
        return "This"
    way = found[0]
    return way if _UNKNOWN not in way else f"Something in {_AFTER_THE_VARIABLE.split(way)[0]}"


def _refuse(stayed: Stayed, *_: Any, **_named: Any) -> NoReturn:
    leaf = leaf_of(stayed)
    there = "a cell of your notebook" if leaf.oid.startswith("h") else "a GPU cell"
    step = "Make it again." if leaf.gone else f"Use it in {there}, or make a new one here."
    raise GPULeaseError("stayed", sentence(stayed), next_step=step)


def _answers(kind: type, name: str) -> bool:
    """Say whether a class gives its objects this: ``hasattr`` also finds its own class's."""
    return any(name in vars(base) for base in kind.__mro__)


#: What Python asks of an object's type, not of the object.
_ASKED = """
call iter next len getitem setitem delitem contains reversed enter exit aenter aexit aiter anext
await float int index complex bytes fspath format add radd sub rsub mul rmul truediv rtruediv
floordiv rfloordiv mod rmod matmul rmatmul pow rpow and rand or ror xor rxor lshift rshift neg pos
abs invert lt le gt ge
"""
_ASKED_NAMES = tuple(f"__{name}__" for name in _ASKED.split())


def standing(leaf: Leaf) -> Stayed:
    """Return what stands for an object: it can be called, or gone through, if that can."""
    kind = leaf.find_class() if isinstance(leaf.cls, tuple) else None  # else not whole yet, maybe
    names = _ASKED_NAMES
    if kind is not None:
        names = tuple(name for name in names if _answers(kind, name))
    made: Stayed = _standing_type(names)(leaf)
    return made


@functools.cache
def _standing_type(names: tuple[str, ...]) -> Any:
    return type("Stayed", (Stayed,), {"__slots__": (), **dict.fromkeys(names, _refuse)})


def let_go(found: Collection[Stayed]) -> None:
    """The other side is gone, with every object of it."""
    for stayed in found:
        leaf_of(stayed).gone = True


#: So many objects are looked at: a longer search would take longer than it is worth.
_LIMIT = 20_000
_CUT = (type, types.ModuleType)
#: What stands for a step that has no spelling.
_UNKNOWN = "(...)"
_AFTER_THE_VARIABLE = re.compile(r"\W")
_LONGEST_KEY = 40


def variables() -> dict[str, Any]:
    """Return the variables of this side's notebook, in which a way is looked for."""
    space = vars(sys.modules["__main__"])
    return {name: space[name] for name in user_names(space, ()) if name in space}


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
