"""What a new value holds, put into the older object that it is the newer content of.

Owns which values may keep being the object that they were: one that nothing but its names refers to
when it is loaded, and that consists of attributes (a data frame's too), slots, the content of a
builtin container or what a cached function remembers.  Nobody met the older object while the new
one was loaded, so none can have seen it half filled.  It runs no code of the object's own.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpulease.sides import caches
from gpulease.sides.libraries import library
from gpulease.transfer import frameworks
from gpulease.transfer.registry import Registry
from gpulease.transfer.values.groups import ATOMIC
from gpulease.transfer.values.kinds.containers import (
    content_of,
    fill_dict,
    fill_items,
    slots_of,
    solid_base,
)
from gpulease.transfer.values.kinds.spaces import can_be_given
from gpulease.transfer_next.references import references


def lasting_ids(names: Mapping[str, Any], known: Registry) -> dict[str, str]:
    """Return the ids of the values that may keep being the objects that they are, by name."""
    return {name: known.oid(value) for name, value in names.items() if may_last(type(value))}


def keep_objects(
    names: dict[str, Any],
    ids: Mapping[str, str],
    known: Registry,
    may_bind: Callable[[str], bool],
) -> None:
    """Put new values into the objects that they are, where these live here; ``names`` get those."""
    for oid in dict.fromkeys(ids.values()):
        own = [name for name in names if ids.get(name) == oid]
        if not own:
            continue
        seen = references(names, own[:1])[own[0]] >= len(own)
        old, new = known.get(oid), names[own[0]]
        if old is new or old is None or not any(map(may_bind, own)):
            known.bind(oid, new)
            continue
        if seen or not _is_alike(old, new) or not _is_alone(new) or not _is_alone(old, None):
            known.bind(oid, new)
            continue
        transplant(old, new)
        names.update(dict.fromkeys(own, old))


def may_last(cls: Any) -> bool:
    """Say whether objects of ``cls`` are nothing but what is known here, and can be found again."""
    if not cls.__weakrefoffset__ or hasattr(cls, "__del__") or frameworks.of(cls) is not None:
        return False
    if cls is caches.LRU_CACHE:
        return True
    solid = solid_base(cls)
    made_alike = solid is not None and (cls.__new__ is solid.__new__ or _is_index(cls))
    return made_alike and cls is not object


def _is_alike(old: Any, new: Any) -> bool:
    if type(old) is not type(new):
        return False
    return type(old) is not caches.LRU_CACHE or caches.is_alike(old, new)


def _is_alone(obj: Any, weak: int | None = 0) -> bool:
    """Say whether nothing finds ``obj`` by a weak reference, and its keys run no code."""
    known = _is_frame(type(obj)) or _is_index(type(obj))  # by pandas itself
    if weak is not None and weakref.getweakrefcount(obj) > weak + known:
        return False
    keys: Iterator[Any] = iter(())
    if isinstance(obj, dict):
        keys = dict.__iter__(obj)
    elif isinstance(obj, set):
        keys = set.__iter__(obj)
    return all(type(key) in ATOMIC for key in keys)


def transplant(old: Any, new: Any) -> None:
    """Make ``old`` what ``new`` is; both are of one type that ``may_last``."""
    kind: Any = type(old)
    if kind is caches.LRU_CACHE:
        caches.fill(old, caches.content_of(new))
        return
    if solid_base(kind) is not object:
        items, option, _ = content_of(new)
        fill_items(old, items, option)
    for name in slots_of(kind):
        try:
            object.__setattr__(old, name, object.__getattribute__(new, name))
        except AttributeError:  # it has none
            with contextlib.suppress(AttributeError):
                object.__delattr__(old, name)
    if not kind.__dictoffset__:
        return
    space = object.__getattribute__(old, "__dict__")
    flags = space.get("_flags") if _is_frame(kind) else None
    held = {0: object.__getattribute__(new, "__dict__")}
    has_others = references(held)[0] > 1
    theirs = held[0]
    if has_others and can_be_given(kind):
        object.__setattr__(old, "__dict__", theirs)  # something else has this very dictionary
        return
    fill_dict(space, theirs)
    for name, value in list(theirs.items()):  # names are pickled once where they are one object
        del space[name]
        space[name] = value
    if flags is not None:  # they know whose they are
        vars(flags).update({**vars(space["_flags"]), "_obj": vars(flags)["_obj"]})
        space["_flags"] = flags
    shared = space.get("_references") if _is_index(kind) else None
    if shared is not None:  # who shares a block with it copies before writing
        shared.add_index_reference(old)


def _is_index(cls: type) -> bool:
    """Say whether this is an index: its ``__new__`` chooses the class, and no more."""
    pandas = library("pandas")
    return pandas is not None and issubclass(cls, pandas.Index)


def _is_frame(cls: type) -> bool:
    pandas = library("pandas")
    return pandas is not None and issubclass(cls, pandas.DataFrame | pandas.Series)
