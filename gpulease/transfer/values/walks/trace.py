"""A second opinion on whether a value changed: which objects it consists of, and how they refer.

Owns the fingerprint of a group whose pickle may differ without a change, because some type in it
counts its picklings or writes a set in any order.  It holds for the same objects in the same
process only; what a C extension hides from the collector it does not see.
"""

from __future__ import annotations

import collections
import gc
import pickle
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import xxhash

from gpulease.sides.libraries import library
from gpulease.sides.looks import is_a
from gpulease.transfer.values.kinds import weak
from gpulease.transfer.values.kinds.containers import is_container
from gpulease.transfer.values.kinds.units import is_plain_instance, own_space
from gpulease.transfer_next.hashing import buffer_digest
from gpulease.transfer_next.refuse import is_dead

if TYPE_CHECKING:
    from gpulease.transfer.values.groups import Group

#: Larger groups are not looked at: their pickle alone decides.
_LIMIT = 50_000
_PLAIN: frozenset[type] = frozenset({
    list, dict, tuple, set, frozenset, bytearray, collections.deque, collections.OrderedDict,
    collections.defaultdict, collections.Counter,
})  # fmt: skip
_BY_VALUE = frozenset({int, float, complex, bool, str, bytes, type(None)})


Trace = frozenset[bytes]


def trace(group: Group) -> Trace:
    """Return one element an object; none where every type pickles the same way each time.

    A write gives some object an element that was not there before; an object that only went away
    gives none.  So nothing was written while the trace of now is a subset of the one before.
    """
    if len(group.inner) > _LIMIT or group.claimed:  # a framework's memory is not looked at
        return frozenset()
    one_of_each = {type(obj): obj for obj in group.inner.values()}
    if all(map(_pickles_alike, one_of_each.values())) and not group.oids:
        return frozenset()
    # An instance's own dictionary is part of the instance, and may be made by this very look.
    spaces = {id(own_space(obj)) for obj in group.inner.values()}
    seen = [obj for key, obj in group.inner.items() if key not in spaces]
    try:
        return frozenset(_one(obj, group.made) for obj in seen)
    except RecursionError:  # tuples within tuples without end: their pickle alone decides
        return frozenset()


def _pickles_alike(obj: Any) -> bool:
    kind = type(obj)
    if kind in _PLAIN or is_plain_instance(obj) or is_container(obj):
        return True
    package = (kind.__module__ or "").partition(".")[0]
    return package in {"numpy", "pandas", "torch"}


def _one(obj: Any, made: set[int]) -> bytes:
    state = xxhash.xxh3_128()
    state.update(b"made" if id(obj) in made else repr((id(obj), id(type(obj)))).encode())
    if is_dead(obj):
        return state.digest()
    numpy = library("numpy")
    if numpy is not None and is_a(obj, numpy.ndarray) and not obj.dtype.hasobject:
        plain = obj.view(numpy.ndarray)  # a masked array would want its mask to fit the bytes
        flat = plain.ravel(order="K").view("u1") if obj.size else obj
        state.update(buffer_digest(memoryview(flat)) if obj.size else b"")
        state.update(repr((obj.shape, obj.strides, str(obj.dtype))).encode())
    elif type(obj) is bytearray:
        state.update(bytes(obj))
    else:
        state.update(_pandas_content(obj) or "".join(_tokens(_parts(obj), made)).encode())
    return state.digest()


def _pandas_content(obj: Any) -> bytes:
    """Return the pickle of an object of pandas, whose blocks the collector does not see.

    Nothing for any other one, nor for what does not pickle: a Styler has functions of its own.
    """
    if not (type(obj).__module__ or "").startswith("pandas"):
        return b""
    try:
        return pickle.dumps(obj, 5)
    except Exception:  # noqa: BLE001 - whatever a part of it raises: they are looked at one by one
        return b""


def _parts(obj: Any) -> list[Any]:
    """Return what ``obj`` refers to, in an order that holds while nobody writes."""
    if weak.is_weak(type(obj)):
        return weak.strong(obj) + weak.referents(obj)
    space = own_space(obj)
    if type(space) is not dict:
        return gc.get_referents(obj)
    # Asked for now, an instance's dictionary stays; before, it may not have been made yet.
    rest = [part for part in gc.get_referents(obj) if part is not space]
    return [*rest, *(part for item in list(space.items()) for part in item)]


def _tokens(parts: Iterable[Any], made: set[int]) -> Iterable[str]:
    for part in parts:
        kind = type(part)
        if kind in _BY_VALUE:
            value = hash(part) if kind is str or kind is bytes else part
            yield f"{kind.__name__}:{value};"
        elif id(part) in made:
            yield "made;"
        elif kind is tuple:
            # By the collector: see ``walk``, of a tuple that has nothing in one of its places.
            inside = _tokens(gc.get_referents(part), made)
            yield f"({''.join(inside) if len(part) < 20 else id(part)});"
        else:
            yield f"{id(part)};"
