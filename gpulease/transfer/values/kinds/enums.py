"""Takes a notebook's enumeration apart and makes it again without running any of its code.

Owns what an enumeration has beyond a class: its members.  They are made empty with the class, so
that a reference to one always finds it, and get their attributes with the class's content.  What
``Flag`` combined without a name is not a member: each side makes those again from their values.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from typing import Any

from gpulease.transfer_next.refuse import RefusedError

from . import classes

#: Under this key the content of an enumeration has its members' attributes.
_MEMBERS = "<members>"
_HEAP_TYPE = 1 << 9
#: How to get a plain value of a builtin type out of a member that is one.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
}


def name_of(member: enum.Enum) -> str | None:
    """Return under which name the class has ``member``; None for an unnamed combination."""
    named = type(member)._member_map_
    if named.get(member._name_) is member:
        return member._name_
    return next((name for name, one in named.items() if one is member), None)


def shell_of(cls: enum.EnumMeta) -> tuple[Any, ...]:
    """Return what it takes to make ``cls`` with empty members; raises RefusedError."""
    named: dict[str, enum.Enum] = cls._member_map_
    first = {id(member): name for name, member in reversed(named.items())}
    members = tuple(
        (name, first[id(member)], _plain(member) if first[id(member)] == name else None)
        for name, member in named.items()
    )
    return (*classes.shell_of(cls), members)


def make(
    meta: type,
    name: str,
    bases: tuple[type, ...],
    space: dict[str, Any],
    members: tuple[tuple[str, str, Any], ...],
) -> type:
    """Return the class with empty members; runs no code of the notebook."""
    with classes.quiet(bases):
        cls: Any = type.__new__(meta, name, bases, dict(space))
    if issubclass(meta, abc.ABCMeta):
        abc._abc_init(cls)  # type: ignore[attr-defined]  # noqa: SLF001
    builtin: Any = _builtin(cls)
    named: dict[str, Any] = {}
    for own, first, value in members:
        if own == first:
            named[own] = builtin.__new__(cls, value) if builtin else object.__new__(cls)
        else:
            named[own] = named[first]
    type.__setattr__(cls, "_member_map_", named)
    return cls  # type: ignore[no-any-return]


def content_of(cls: enum.EnumMeta) -> dict[str, Any]:
    """Return everything else that ``cls`` and its members consist of."""
    out = classes.content_of(cls)
    named: dict[str, enum.Enum] = cls._member_map_
    known = {id(member) for member in named.values()}
    # Its tables as tuples: they are read while the rest loads, and nobody else holds them.
    out["_member_map_"] = tuple(named.items())
    values = out.get("_value2member_map_", {})
    out["_value2member_map_"] = tuple((v, m) for v, m in values.items() if id(m) in known)
    out[_MEMBERS] = tuple(
        (name, tuple((k, _kept(k, v, known)) for k, v in vars(member).items()))
        for name, member in named.items()
    )
    return out


def apply(cls: enum.EnumMeta, content: dict[str, Any]) -> None:
    """Make ``cls`` and its members consist of ``content``, deletions included."""
    own = cls.__dict__.get("_value2member_map_", {})
    known = {id(member) for member in cls._member_map_.values()}
    combined = {v: m for v, m in own.items() if id(m) not in known}
    rest = {key: value for key, value in content.items() if key != _MEMBERS}
    rest["_member_map_"] = named = dict(content["_member_map_"])
    rest["_value2member_map_"] = dict(content["_value2member_map_"]) | combined
    classes.apply(cls, rest)
    for name, attributes in content[_MEMBERS]:
        space: dict[str, Any] = named[name].__dict__
        fresh = dict(attributes)
        space.update(fresh)
        for key in [key for key in space if key not in fresh]:
            del space[key]


def _kept(key: str, value: Any, known: set[int]) -> Any:
    """Leave out what ``~`` remembers of an unnamed combination."""
    return None if key == "_inverted_" and id(value) not in known else value


def _builtin(cls: type) -> type | None:
    """Return the builtin type whose values the members are, or None."""
    return next((b for b in cls.__mro__ if b is not object and not b.__flags__ & _HEAP_TYPE), None)


def _plain(member: enum.Enum) -> Any:
    builtin = _builtin(type(member))
    if builtin is None:
        return None
    if builtin not in _PLAIN:
        raise RefusedError(f"an enumeration of {builtin.__name__} values")
    return _PLAIN[builtin](member)
