"""Takes a notebook's class apart and makes it again without running any of its code.

Owns what a class consists of: its metaclass, name, real bases and slots (needed to make an empty
one), and everything else in its dictionary.  Neither ``__init_subclass__`` nor a metaclass written
in the notebook runs: what they did when the class was made is in its dictionary already.
"""

from __future__ import annotations

import abc
import contextlib
import inspect
import types
from collections.abc import Iterator
from typing import Any

from gpulease.transfer import frameworks
from gpulease.transfer.values import given_up
from gpulease.transfer_next import registered_with

_LEFT_OUT = frozenset({"__dict__", "__weakref__", "__slots__", "__slotnames__",
                       "__annotate_func__"})  # fmt: skip
_ABC_PARTS = frozenset({"_abc_cache", "_abc_negative_cache", "_abc_negative_cache_version"})
_HEAP_TYPE = 1 << 9
#: In a content: what frameworks keep about the class (no attribute has such a name).
_ENTRIES = "kept by frameworks"
#: The same of modules' abstract classes that it is registered with.
_REGISTERED = "registered with"
_NO_ATTRIBUTES = frozenset({"_abc_impl", _ENTRIES, _REGISTERED})


def shell_of(cls: type) -> tuple[Any, ...]:
    """Return metaclass, name, bases and the first dictionary of an empty ``cls``."""
    space: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    if "__slots__" in cls.__dict__:
        slots = cls.__dict__["__slots__"]
        space["__slots__"] = slots if isinstance(slots, str) else tuple(slots)
    space |= {name: cls.__dict__[name] for name in _shadowed(cls)}
    return type(cls), cls.__name__, cls.__bases__, space


def _shadowed(cls: type) -> list[str]:
    """Return the attributes of ``cls`` that its metaclass has a property for: ``nargs`` of SymPy's.

    Only the body of a class can give it one, and nobody another one later.
    """
    order = type.mro(type(cls))
    metas = order[: order.index(type)]
    names = dict.fromkeys(name for meta in metas for name in vars(meta) if name in cls.__dict__)
    found = ((name, inspect.getattr_static(type(cls), name)) for name in names)
    return [name for name, value in found if hasattr(type(value), "__set__")]


def make(meta: type, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> type:
    """Return an empty class; runs no code of the notebook."""
    with quiet(bases):
        maker: Any = abc.ABCMeta if issubclass(meta, abc.ABCMeta) else type
        try:
            made = maker.__new__(meta, name, bases, dict(space))
        except TypeError:  # a metaclass in C has to make its classes itself
            return types.new_class(name, bases, {"metaclass": meta}, lambda ns: ns.update(space))
    assert isinstance(made, type)
    return made


@contextlib.contextmanager
def quiet(bases: tuple[type, ...]) -> Iterator[None]:
    """Take ``__init_subclass__`` away from the bases' classes for a moment."""
    hidden: list[tuple[type, Any]] = []
    for base in dict.fromkeys(cls for first in bases for cls in first.__mro__):
        if base.__flags__ & _HEAP_TYPE and "__init_subclass__" in base.__dict__:
            hidden.append((base, base.__dict__["__init_subclass__"]))
            type.__setattr__(base, "__init_subclass__", classmethod(_nothing))
    try:
        yield
    finally:
        for base, method in hidden:
            type.__setattr__(base, "__init_subclass__", method)


def _nothing(_cls: type, /, **_kwargs: Any) -> None:
    """Stand for a hook that ran long ago."""


def content_of(cls: type) -> dict[str, Any]:
    """Return everything else that ``cls`` consists of."""
    out: dict[str, Any] = {"__qualname__": cls.__qualname__}
    left_out = _LEFT_OUT.union(_ABC_PARTS, _shadowed(cls))
    for key, value in list(cls.__dict__.items()):
        if key in left_out:
            continue
        if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
            continue  # made anew with the slots
        out[key] = value
    if "__del__" in out:
        given_up.met(cls)
        out["__del__"] = given_up.own(cls, "__del__")
    if "_abc_impl" in out:
        out["_abc_impl"] = [found for ref in abc._get_dump(cls)[0] if (found := ref())]  # type: ignore[attr-defined]  # noqa: SLF001
    if entries := frameworks.entries(cls):
        out[_ENTRIES] = entries
    if abstract := registered_with.abstract_classes_of(cls):
        out[_REGISTERED] = abstract
    return out


def apply(cls: type, content: dict[str, Any]) -> None:
    """Make ``cls`` consist of ``content``, deletions included."""
    have = content_of(cls)
    for name in have:
        if name not in content and name not in {"__module__", "__doc__", *_NO_ATTRIBUTES}:
            type.__delattr__(cls, name)
    for name, value in content.items():
        if name == "_abc_impl":
            for subclass in value:
                abc.ABCMeta.register(cls, subclass)  # type: ignore[arg-type]
        elif name not in _NO_ATTRIBUTES and (name not in have or have[name] is not value):
            type.__setattr__(cls, name, value)
    registered_with.register(cls, content.get(_REGISTERED, ()))
    if "__del__" in content:
        given_up.met(cls)
    # A framework may look at all the others.
    frameworks.enter(cls, content.get(_ENTRIES, {}))
