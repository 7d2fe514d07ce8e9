"""Dictionaries of attributes that something else holds as well: ``cfg = vars(args)``.

A pickle gives each object a dictionary of its own and copies the attributes into it.  Where a
variable, a container or another object has that very dictionary, the object gets it as its own.
"""

from __future__ import annotations

import functools
import gc
import types
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from gpulease.transfer_next.refuse import RefusedError

from . import containers

#: Units, and what gets a dictionary by being asked for one.
_OTHERS = (type, types.FunctionType, types.ModuleType, functools.partial)


def held_besides(inner: Mapping[int, Any], direct: Iterable[Any]) -> dict[int, Any]:
    """Return the dictionaries of attributes that more than one refers to, by their object's id.

    ``inner`` are the objects of a group by id, ``direct`` what its names and cells are bound to.
    """
    kinds = {
        kind
        for kind in set(map(type, inner.values()))
        if kind.__dictoffset__ and not issubclass(kind, _OTHERS)
    }
    if not kinds:
        return {}
    known = {key for key, obj in inner.items() if isinstance(obj, dict)}
    if not known:
        return {}
    held = chain(gc.get_referents(*inner.values()), direct)
    counts = Counter(key for key in map(id, held) if key in known)
    twice = {key for key, count in counts.items() if count > 1}
    if not twice:
        return {}
    owners = (obj for obj in inner.values() if type(obj) in kinds)
    return {
        id(obj): part
        for obj in owners
        for part in gc.get_referents(obj)
        if id(part) in twice and space_of(obj) is part
    }


def space_of(obj: Any) -> Any:
    """Return an object's dictionary of attributes; this makes one where there was none."""
    return object.__getattribute__(obj, "__dict__")


def can_be_given(kind: type) -> bool:
    """Say whether objects of this type take another dictionary for their attributes."""
    for base in kind.__mro__:
        if "__dict__" in base.__dict__:
            return type(base.__dict__["__dict__"]) is types.GetSetDescriptorType
    return False


def reduce(obj: Any, space: Any, reduced: Any) -> Any:
    """Let what an object is ``reduced`` to have ``space`` itself; raises RefusedError."""
    if containers.is_container(obj) and can_be_given(type(obj)):
        items, option, state = containers.content_of(obj)
        slots = state[1] if isinstance(state, tuple) else None
        maker, arguments = containers.make, containers.shell_of(obj)
        return maker, arguments, ((items, option, (None, slots)), space), None, None, give_filled
    if isinstance(reduced, tuple) and len(reduced) < 6:
        maker, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        own, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
        nothing = own is None and not space
        if (own is space or nothing) and not hasattr(type(obj), "__setstate__"):
            if not can_be_given(type(obj)):
                return maker, arguments, dict(space), items, pairs
            return maker, arguments, (space, slots), items, pairs, give
    raise RefusedError("attributes that something else holds as a dictionary (vars)", obj)


# ---- rebuilding


def give(obj: Any, state: tuple[Any, dict[str, Any] | None]) -> None:
    """Let an object have this very dictionary of attributes, and give it its slots."""
    space, slots = state
    object.__setattr__(obj, "__dict__", space)
    for name, value in (slots or {}).items():
        object.__setattr__(obj, name, value)


def give_filled(obj: Any, state: tuple[Any, Any]) -> None:
    """Fill a container, and let it have this very dictionary of attributes."""
    content, space = state
    containers.fill(obj, content)
    object.__setattr__(obj, "__dict__", space)
