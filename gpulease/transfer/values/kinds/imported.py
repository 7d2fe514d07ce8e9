"""Objects that a notebook has by importing them: they are a module's, and no name's own.

Two values that hold ``HTTPStatus.OK``, a dtype or a sentinel of a library share nothing that a cell
could change.  Such objects join no group and are not walked through; both sides have them, and what
refers to them refers to the other side's.
"""

from __future__ import annotations

import dataclasses
import enum
import gc
import operator
import random
import sys
import types
import typing
import weakref
import zoneinfo
from collections.abc import Callable
from typing import Any

from gpulease.sides import process_objects
from gpulease.sides.caches import LRU_CACHE
from gpulease.sides.libraries import library, whole_library

from .units import is_unit

Rule = Callable[[Any], bool]

#: Types whose objects pickle by name, or are made again from a value and compare by it.
_LIBRARIES: dict[str, Callable[[Any], list[type]]] = {
    "pandas": lambda pandas: [type(pandas.NA), type(pandas.NaT)],
    "torch": lambda t: [t.dtype, t.device, t.layout, t.memory_format, t.qscheme],
}
_ALWAYS: tuple[type, ...] = (
    enum.Enum,
    type(typing.Union),
    type(typing.List),  # noqa: UP006 - the form itself
    dataclasses._FIELD_BASE,  # type: ignore[attr-defined]  # noqa: SLF001 - cloudpickle's, too
)
_NO_METADATA: Any = dataclasses.field().metadata
_VARIABLES: tuple[type, ...] = (typing.TypeVar, typing.ParamSpec)
#: What typing makes of a form, and gives out again for the same arguments.
ALIAS: type = type(typing.List[int])  # noqa: UP006
_HEAP_TYPE = 1 << 9
#: What an instance without any attribute takes, with room for its dictionary and weak references.
_EMPTY_SIZE = object.__basicsize__ + 16
#: Type -> how many names its module had, and its instances there by id: name.
_sentinels: weakref.WeakKeyDictionary[type, tuple[int, dict[int, str]]] = (
    weakref.WeakKeyDictionary()
)


class Imported:
    """Which objects are imported: what one walk asks, for a library may come before the next."""

    def __init__(self) -> None:
        self._rules: dict[type, Rule | None] = {}

    def __call__(self, obj: Any) -> bool:
        """Say whether a module has ``obj``, and no name of the notebook's."""
        rule = self._rule(type(obj))
        return rule is not None and rule(obj)

    def may_be(self, kind: type) -> bool:
        """Say whether any object of exactly this type may be."""
        return self._rule(kind) is not None

    def _rule(self, kind: type) -> Rule | None:
        if kind not in self._rules:
            self._rules[kind] = _rule(kind)
        return self._rules[kind]


def _rule(kind: type) -> Rule | None:  # noqa: PLR0911 - one a kind
    if is_unit(kind):
        return None
    if issubclass(kind, _VARIABLES):
        return _is_found
    if issubclass(kind, _ALWAYS) or any(kind in _kinds(name) for name in _LIBRARIES):
        return _always
    numpy = whole_library("numpy")
    some = {**_SOME, _random_state(numpy): _is_the_generator}
    if kind in some:
        return some[kind]
    if process_objects.may_be(kind):
        return process_objects.is_one
    if numpy is not None and issubclass(kind, (numpy.dtype, numpy.ufunc)):
        return is_one_of_a_kind if issubclass(kind, numpy.dtype) else _is_compiled
    return (lambda obj: bool(name_of(obj))) if _named(kind) else None


def _kinds(name: str) -> list[type]:
    found = whole_library(name)
    return _LIBRARIES[name](found) if found is not None else []


def parts_of_alias(alias: Any) -> list[Any]:
    """Return what an annotation of typing's consists of: a notebook's classes may be in it."""
    return [alias.__origin__, *alias.__args__, *getattr(alias, "__metadata__", ())]


def is_one_of_a_kind(dtype: Any) -> bool:
    """Say whether numpy has this one dtype of its kind, as of ``float64``."""
    numpy = library("numpy")
    if dtype.isbuiltin == 1:
        return numpy.dtype(dtype.char) is dtype
    return dtype.isbuiltin == 2 and numpy.dtype(dtype.type) is dtype


def name_of(obj: Any) -> str:
    """Return the name under which the module of its class has ``obj``, '' where it has state.

    A sentinel without an attribute is itself and nothing else.
    """
    kind = type(obj)
    name = _named(kind).get(id(obj), "")
    if not name or getattr(sys.modules[kind.__module__], name, None) is not obj:
        return ""
    held = (part for part in gc.get_referents(obj) if part is not kind)
    return "" if any(type(part) is not dict or part for part in held) else name


def reduce(obj: Any) -> Any:  # noqa: PLR0911 - one a kind
    """Reduce what is imported, and would not be itself again by its own way.

    Of a notebook's class there is no such object: nobody asks.
    """
    kind = type(obj)
    numpy = library("numpy")
    if obj is _GENERATOR:
        return getattr, (random, "_inst")
    if kind is typing.NewType:
        return reduce_new_type(obj)
    if kind is _random_state(numpy) and _is_the_generator(obj):
        return getattr, (sys.modules["numpy.random.mtrand"], "_rand")
    if numpy is not None and isinstance(obj, numpy.dtype):
        if not is_one_of_a_kind(obj):
            return NotImplemented
        return numpy.dtype, (obj.char if obj.isbuiltin == 1 else obj.type,)
    ways: Any = (kind.__reduce_ex__, kind.__reduce__)
    if ways != (object.__reduce_ex__, object.__reduce__):
        return NotImplemented
    name = name_of(obj)
    return (getattr, (sys.modules[kind.__module__], name)) if name else NotImplemented


def reduce_new_type(obj: Any) -> Any:
    """Reduce a ``typing.NewType`` of the notebook's; its own way knows it by name only."""
    module = sys.modules.get(obj.__module__)
    if module is not None and obj.__module__ != "__main__":
        return NotImplemented
    return object.__new__, (type(obj),), dict(vars(obj))


def _always(_obj: Any) -> bool:
    return True


def _is_found(variable: Any) -> bool:
    module = sys.modules.get(str(variable.__module__))
    own = module is not None and module.__name__ != "__main__"
    return own and getattr(module, variable.__name__, None) is variable


def _is_kept_zone(zone: Any) -> bool:
    """Say whether there is one such zone: one read from a file has no key, or was read again."""
    return zone.key is not None and bool(zone.__reduce__()[1][1])


def is_cached_by_name(function: Any) -> bool:
    """Say whether a module has this function with a cache by its name: each side its own."""
    module = sys.modules.get(str(function.__module__))
    if module is None or module.__name__ == "__main__":
        return False
    try:
        return operator.attrgetter(function.__qualname__)(module) is function
    except AttributeError:
        return False


def _random_state(numpy: Any) -> Any:
    """Return the class of numpy's one generator, None where that is not imported."""
    made = getattr(sys.modules.get("numpy.random.mtrand"), "RandomState", None)
    return made if numpy is not None else None


def _is_the_generator(state: Any) -> bool:
    """Say whether this is what ``numpy.random.rand`` draws from: its state travels by itself."""
    return state is getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)


#: What ``random.random`` draws from; the same.
_GENERATOR: Any = random.seed.__self__  # type: ignore[attr-defined]
_SOME: dict[type, Rule] = {
    random.Random: lambda generator: generator is _GENERATOR,
    LRU_CACHE: is_cached_by_name,
    zoneinfo.ZoneInfo: _is_kept_zone,
    types.MappingProxyType: lambda proxy: proxy is _NO_METADATA,
}


def _is_compiled(ufunc: Any) -> bool:
    return not any(map(callable, gc.get_referents(ufunc)))  # or else it calls what a notebook made


def _named(kind: type) -> dict[int, str]:
    """Return the instances of a class that its own module has, by id, where they may be empty."""
    module = sys.modules.get(kind.__module__)
    if module is None:
        return {}
    space = vars(module)
    known = _sentinels.get(kind)
    if known is None or known[0] != len(space):
        held = list(space.items()) if _may_be_empty(kind) else []
        found = {id(value): name for name, value in held if type(value) is kind}
        known = _sentinels[kind] = len(space), found
    return known[1]


def _may_be_empty(kind: type) -> bool:
    heap = all(base.__flags__ & _HEAP_TYPE for base in kind.__mro__[:-1])
    return heap and kind.__basicsize__ <= _EMPTY_SIZE
