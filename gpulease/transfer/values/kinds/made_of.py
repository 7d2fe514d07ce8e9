"""Values with a class of the person's own: an amount of money that is a Decimal with a currency.

Owns how such a number, text, date, path and the like is taken apart into the value that it is
and the attributes that it has, and made again.  Their own way of being pickled calls the class with
the value alone, which is not what its ``__new__`` wants or makes another value of it again, and
that of many leaves the attributes behind.
"""

from __future__ import annotations

import copyreg
import datetime
import decimal
import enum
import fractions
import ipaddress
import pathlib
import random
import types
from typing import Any

from gpulease.sides.module_files import module_digest

from . import tokens
from .units import is_interpreters, is_unit, own_space

_NUMBERS_AND_TEXT = (int, float, complex, str, bytes)
_ADDRESSES = (
    ipaddress.IPv4Interface, ipaddress.IPv4Address, ipaddress.IPv4Network,
    ipaddress.IPv6Interface, ipaddress.IPv6Address, ipaddress.IPv6Network,
)  # fmt: skip
#: What is made from nothing and has a state instead.
_EMPTY = (datetime.tzinfo, types.SimpleNamespace, random.Random)
#: What such a class may be made from, the more special ones first.
_BASES: tuple[Any, ...] = (
    frozenset, *_NUMBERS_AND_TEXT, *_ADDRESSES, *_EMPTY,
    datetime.datetime, datetime.date, datetime.time, datetime.timedelta,
    decimal.Decimal, fractions.Fraction, pathlib.PurePath,
)  # fmt: skip
_OWN_WAYS = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__",
             "__getnewargs_ex__", "__getinitargs__")  # fmt: skip


def reduce(obj: Any) -> Any:
    """Reduce such a value; NotImplemented for any other object, and one with a way of its own."""
    if not isinstance(obj, _BASES) or isinstance(obj, enum.Enum):
        return NotImplemented
    kind: Any = type(obj)
    if not (is_unit(kind) or module_digest(kind.__module__)) or kind in copyreg.dispatch_table:
        return NotImplemented
    base = next(each for each in _BASES if issubclass(kind, each))
    above = kind.__mro__[: kind.__mro__.index(base)]
    if any(is_interpreters(each) or _has_a_way(each) for each in above if not _is_path(each)):
        return NotImplemented
    space, slots = own_space(obj), _slots(obj, above)
    arguments = base, kind, _value(base, obj)
    if base is random.Random:
        return make, arguments, (random.Random.getstate(obj), space, slots), None, None, fill
    if slots or any("__getattr__" in vars(each) for each in above):
        return make, arguments, (space, slots), None, None, tokens.instance_state
    return make, arguments, space or None


def _has_a_way(cls: type) -> bool:
    return any(name in vars(cls) for name in _OWN_WAYS)


def _is_path(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "pathlib"


def _slots(obj: Any, above: tuple[type, ...]) -> dict[str, Any]:
    """Return what slots of the person's classes hold; the base's are its value."""
    found: dict[str, Any] = {}
    for cls in above:
        for name, slot in vars(cls).items():
            if type(slot) is types.MemberDescriptorType and not _is_path(cls):
                try:
                    found[name] = slot.__get__(obj)
                except AttributeError:  # it is empty
                    continue
    return found


def _value(base: Any, obj: Any) -> tuple[Any, ...]:
    """Return what ``base`` makes an equal value from; no method of the object's class runs."""
    if base in _EMPTY:
        return ()
    if base in _NUMBERS_AND_TEXT:
        return tuple(base.__getnewargs__(obj))
    if base is frozenset:
        return (list(frozenset.__iter__(obj)),)
    if base in _ADDRESSES:
        return (base.__str__(obj),)
    return tuple(base.__reduce_ex__(obj, 5)[1])


# ---- rebuilding


def make(base: Any, kind: type, value: tuple[Any, ...]) -> Any:
    """Return an object of ``kind`` with this value; none of its class's code runs."""
    made = base.__new__(kind, *value)
    if value and base.__init__ is not object.__init__:
        base.__init__(made, *value)
    return made


def fill(obj: random.Random, state: tuple[Any, Any, dict[str, Any]]) -> None:
    """Give one its place in what it draws, its attributes and its slots."""
    draws, *attributes = state
    random.Random.setstate(obj, draws)
    tokens.instance_state(obj, tuple(attributes))
