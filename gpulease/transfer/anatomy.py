"""What an instance consists of: attributes, slots, and what the builtin under its class holds.

A move is no serialisation.  Of a class of the notebook everything is taken as it is, whatever the
class says of pickling, and put into an empty instance on the other side; none of its code runs.
The attributes' dictionary itself is passed, so that ``vars(x)`` under another name stays the same.
"""

from __future__ import annotations

import array
import collections
import contextlib
import datetime
import decimal
import gc
import random
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_HEAP, _FIXED, _BASE = 1 << 9, 1 << 8, 1 << 10
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_COMPILED = (types.WrapperDescriptorType, types.MethodDescriptorType)
_statements: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()
_spaces: weakref.WeakKeyDictionary[type, Any] = weakref.WeakKeyDictionary()
_slots: weakref.WeakKeyDictionary[type, tuple[Any, ...]] = weakref.WeakKeyDictionary()
_bases: weakref.WeakKeyDictionary[type, type | None] = weakref.WeakKeyDictionary()


def made_by_python(cls: type) -> bool:
    """Say whether a class statement made this class.

    A compiled module may make one that looks so by its flags (those of wrapt): its methods are code
    of its own, and so is what its instances hold.
    """
    if (cls.__flags__ & (_HEAP | _FIXED | _BASE)) != _HEAP | _BASE:
        return False
    found = _statements.get(cls)
    if found is None:
        found = _statements[cls] = not any(
            type(each) in _COMPILED and each.__objclass__ is cls for each in vars(cls).values()
        )
    return found


def space_of(obj: Any) -> dict[str, Any] | None:
    """Return the very dictionary of an object's attributes; its class is not asked."""
    found = way_to_space(type(obj))
    return None if found is None else found.__get__(obj)


def way_to_space(kind: type) -> Any:
    """Return the descriptor that gets and sets the dictionary of attributes, None for none."""
    found = _spaces.get(kind, _spaces)
    if found is _spaces:
        own = (vars(base).get("__dict__") for base in kind.__mro__)
        found = _spaces[kind] = next((each for each in own if type(each) in _DESCRIPTORS), None)
    return found


def space_of_class(cls: type) -> Any:
    """Return the very dictionary of a class's attributes, which ``vars`` shows read-only."""
    return gc.get_referents(vars(cls))[0]


def slots_of(obj: Any) -> dict[str, Any]:
    """Return what the slots of an object hold."""
    kind = type(obj)
    known = _slots.get(kind)
    if known is None:
        known = _slots[kind] = tuple(
            (name, each)
            for base in kind.__mro__
            if made_by_python(base)
            for name, each in vars(base).items()
            if type(each) is types.MemberDescriptorType
        )
    held = {}
    for name, each in known:
        with contextlib.suppress(AttributeError):
            held[name] = each.__get__(obj)
    return held


@dataclass(frozen=True)
class Builtin:
    """A builtin under a class: what an empty one is made from, and what is put into it."""

    made_from: Callable[[Any], tuple[Any, ...]]
    make: Callable[..., Any]
    content: Callable[[Any], Any] | None = None
    fill: Callable[[Any, Any], None] | None = None


def _fill_dict(kind: Any) -> Callable[[Any, Any], None]:
    def fill(obj: Any, content: list[Any]) -> None:
        kind.clear(obj)
        for key, value in zip(content[::2], content[1::2], strict=True):
            kind.__setitem__(obj, key, value)

    return fill


def _pairs(kind: Any) -> Callable[[Any], list[Any]]:
    return lambda obj: [part for pair in kind.items(obj) for part in pair]


def _fill_list(obj: Any, content: list[Any]) -> None:
    list.__setitem__(obj, slice(None), content)


def _fill_set(obj: Any, content: list[Any]) -> None:
    set.clear(obj)
    set.update(obj, content)


_Deque: Any = collections.deque
_Default: Any = collections.defaultdict
_maxlen: Any = vars(_Deque)["maxlen"]
_RANDOM: Any = random.Random.__base__
_factory: Any = vars(_Default)["default_factory"]


def _fill_deque(obj: Any, content: Any) -> None:
    items, maxlen = content
    _Deque.__init__(obj, items, maxlen)


def _fill_default(obj: Any, content: Any) -> None:
    factory, pairs = content
    _factory.__set__(obj, factory)
    _fill_dict(dict)(obj, pairs)


def _fill_bytes(obj: Any, content: bytes) -> None:
    bytearray.__setitem__(obj, slice(None), content)


def _immutable(kind: Any, value: Callable[[Any], Any]) -> Builtin:
    return Builtin(lambda obj: (value(obj),), kind.__new__)


def _reduced(kind: Any) -> Builtin:
    # Its very own way: ``__reduce_ex__`` of ``object`` would ask the notebook's class.
    own = vars(kind)
    if "__reduce_ex__" in own:
        return Builtin(lambda obj: own["__reduce_ex__"](obj, 4)[1], kind.__new__)
    return Builtin(lambda obj: own["__reduce__"](obj)[1], kind.__new__)


def _nothing(_obj: Any) -> tuple[Any, ...]:
    return ()


def _members(exc: BaseException) -> dict[str, Any]:
    held = {}
    for base in type(exc).__mro__:
        if not made_by_python(base):
            for name, each in vars(base).items():
                if type(each) is types.MemberDescriptorType and not name.startswith("__"):
                    with contextlib.suppress(AttributeError):
                        held[name] = each.__get__(exc)
    return held


def _made_exception(cls: Any, args: tuple[Any, ...]) -> BaseException:
    solid: Any = next(base for base in cls.__mro__ if not made_by_python(base))
    exc: BaseException = solid.__new__(cls, *args)
    with contextlib.suppress(TypeError):  # its arguments were replaced since
        solid.__init__(exc, *args)
    exc.args = args
    return exc


def _exception_args(exc: BaseException) -> tuple[Any, ...]:
    if isinstance(exc, BaseExceptionGroup):
        return ((exc.message, list(exc.exceptions)),)
    return (exc.args,)


def _exception_content(exc: BaseException) -> tuple[Any, ...]:
    return (exc.args, _members(exc), exc.__cause__, exc.__context__, exc.__suppress_context__)


def _fill_exception(exc: BaseException, content: Any) -> None:
    args, members, exc.__cause__, exc.__context__, suppress = content
    exc.__suppress_context__ = suppress
    exc.args = args
    for name, value in members.items():
        with contextlib.suppress(AttributeError, TypeError):  # it cannot be set
            if getattr(exc, name) is not value:
                setattr(exc, name, value)


def _array_content(obj: Any) -> bytes:
    return array.array.tobytes(obj)


def _fill_array(obj: Any, content: bytes) -> None:
    array.array.__delitem__(obj, slice(None))
    array.array.frombytes(obj, content)


BUILTINS: dict[type, Builtin] = {
    object: Builtin(_nothing, object.__new__),
    list: Builtin(_nothing, list.__new__, lambda obj: list(list.__iter__(obj)), _fill_list),
    _Default: Builtin(
        _nothing, _Default.__new__,
        lambda obj: (_factory.__get__(obj), _pairs(dict)(obj)), _fill_default,
    ),
    collections.OrderedDict: Builtin(
        _nothing, collections.OrderedDict.__new__,
        _pairs(collections.OrderedDict), _fill_dict(collections.OrderedDict),
    ),
    dict: Builtin(_nothing, dict.__new__, _pairs(dict), _fill_dict(dict)),
    set: Builtin(_nothing, set.__new__, lambda obj: list(set.__iter__(obj)), _fill_set),
    _Deque: Builtin(
        _nothing, _Deque.__new__,
        lambda obj: (list(_Deque.__iter__(obj)), _maxlen.__get__(obj)), _fill_deque,
    ),
    bytearray: Builtin(
        _nothing, bytearray.__new__,
        lambda obj: bytes(bytearray.__getitem__(obj, slice(None))), _fill_bytes,
    ),
    array.array: Builtin(
        lambda obj: (obj.typecode,), array.array.__new__, _array_content, _fill_array
    ),
    BaseException: Builtin(
        _exception_args, _made_exception, _exception_content, _fill_exception
    ),
    bool: _immutable(int, int.__pos__),
    int: _immutable(int, int.__pos__),
    float: _immutable(float, float.__pos__),
    complex: _immutable(complex, complex.__pos__),
    str: _immutable(str, str.__str__),
    bytes: _immutable(bytes, lambda obj: bytes.__getitem__(obj, slice(None))),
    tuple: _immutable(tuple, lambda obj: tuple.__getitem__(obj, slice(None))),
    frozenset: _immutable(frozenset, lambda obj: list(frozenset.__iter__(obj))),
    datetime.datetime: _reduced(datetime.datetime),
    datetime.date: _reduced(datetime.date),
    datetime.time: _reduced(datetime.time),
    datetime.timedelta: _reduced(datetime.timedelta),
    datetime.tzinfo: Builtin(_nothing, datetime.tzinfo.__new__),
    decimal.Decimal: _reduced(decimal.Decimal),
    _RANDOM: Builtin(_nothing, _RANDOM.__new__, random.Random.getstate, random.Random.setstate),
    types.SimpleNamespace: Builtin(_nothing, types.SimpleNamespace.__new__),
}  # fmt: skip


def builtin_under(cls: type) -> type | None:
    """Return the builtin that a class is made from, None where we cannot take it apart."""
    if cls not in _bases:
        found: type | None = None
        for base in cls.__mro__:
            if base in BUILTINS:
                found = base
            elif made_by_python(base) or issubclass(base, BaseException):
                continue
            break
        if found is object and _has_more(cls):
            found = None
        _bases[cls] = found
    return _bases[cls]


def _has_more(cls: type) -> bool:
    """Say whether compiled code keeps something in instances: a base that no Python made."""
    return any(base is not object and not made_by_python(base) for base in cls.__mro__)


def take_apart(obj: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return what ``put_together`` takes for an empty one, and what ``fill`` puts into it."""
    base = builtin_under(type(obj))
    assert base is not None, type(obj)
    builtin = BUILTINS[base]
    content = builtin.content(obj) if builtin.content is not None else None
    space = space_of(obj)
    if base is types.SimpleNamespace and space is not None:
        space = dict(space)  # it keeps its own (see ``keeps_its_space``)
    return builtin.made_from(obj), (space, slots_of(obj) or None, content)


def is_bare(cls: type) -> bool:
    """Say whether instances are a dictionary of attributes, and nothing else."""
    return (
        builtin_under(cls) is object
        and any("__dict__" in vars(base) for base in cls.__mro__)
        and not any("__slots__" in vars(base) for base in cls.__mro__)
    )


def keeps_its_space(obj: Any) -> bool:
    """Say whether an object's dictionary of attributes cannot be replaced by another."""
    kind = type(obj)
    return kind is types.ModuleType or builtin_under(kind) is types.SimpleNamespace


def put_together(cls: Any, made_from: tuple[Any, ...]) -> Any:
    """Return an instance without attributes."""
    base = builtin_under(cls)
    assert base is not None, cls
    return BUILTINS[base].make(cls, *made_from)


def fill(obj: Any, state: tuple[Any, Any, Any]) -> None:
    """Make an instance hold what ``take_apart`` found, whatever it holds."""
    space, slots, content = state
    cls = type(obj)
    base = builtin_under(cls)
    assert base is not None, cls
    builtin = BUILTINS[base]
    if builtin.fill is not None:
        builtin.fill(obj, content)
    if space is not None:
        set_space(obj, space)
    held = slots_of(obj)
    for name, each in _slots[cls]:
        if slots and name in slots:
            each.__set__(obj, slots[name])
        elif name in held:
            each.__delete__(obj)


def set_space(obj: Any, space: dict[str, Any]) -> None:
    """Make ``space`` the dictionary of an object's attributes, or the same as that."""
    own = space_of(obj)
    if own is space:
        return
    descriptor = way_to_space(type(obj))
    try:
        descriptor.__set__(obj, space)
    except (AttributeError, TypeError):  # a SimpleNamespace or a module keeps its own
        assert own is not None
        own.clear()
        own.update(space)


def content_of(cell: types.CellType) -> Any:
    """Return what a cell of a closure holds, None where it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def class_with(space: Any) -> Any:
    """Return the class that a dictionary is the very own of, None for another one.

    Compiled annotations keep such a dictionary in a cell.
    """
    if type(space) is not dict or "__module__" not in space:
        return None
    return next((each for each in gc.get_referrers(space) if isinstance(each, type)), None)
