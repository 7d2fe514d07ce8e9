"""Which names and units belong together: share edges make groups, need edges tie them.

Owns what a group is; ``walk`` finds them.  Two roots (a name, or a unit's content) are in one
group when they reach the same identity object or overlapping array memory.
"""

from __future__ import annotations

import builtins
import datetime
import decimal
import fractions
import functools
import gc
import pathlib
import re
import types
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpulease.transfer.registry import is_oid
from gpulease.transfer_next.engine import AbandonedError

__all__ = ["AbandonedError"]  # passed on

_BUILTINS = frozenset(dir(builtins))
#: Types without identity or parts: equal is as good as same (contract: numbers, strings).
ATOMIC: frozenset[type] = frozenset({
    int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented), range,
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone,
    decimal.Decimal, fractions.Fraction, uuid.UUID, re.Pattern, pathlib.PosixPath,
    pathlib.PurePosixPath, types.CodeType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
})  # fmt: skip


def are_atomic(some: Any) -> bool:
    """Say whether a tuple or frozenset holds numbers, texts and the like only.

    By the collector: a tuple of ``zip_longest`` has nothing in the place of what has ended, and to
    ask it for that ends the process.
    """
    return ATOMIC.issuperset(map(type, gc.get_referents(some)))


#: Called every millisecond or so of a long look; raises AbandonedError to end it.
Check = Callable[[], None]


def name_root(name: str) -> str:
    """Return the root of a user name."""
    return "n:" + name


def unit_root(oid: str) -> str:
    """Return the root of a unit's content."""
    return "u:" + oid


def names_of(roots: Iterable[str]) -> list[str]:
    """Return the user names among roots."""
    return [root[2:] for root in roots if root.startswith("n:")]


def counted_with(name: str, roots: Iterable[str]) -> str:
    """Return the name among these roots that counts the size of all, "" where it is this one."""
    first = min(names_of(roots), default=name)
    return "" if first == name else first


@dataclass
class Group:
    """Roots that travel together, and what is known of them without pickling.

    ``nbytes`` counts array memory and long strings at the top; ``objects`` the walked objects;
    ``needs`` are oids of units outside the group; ``reads`` global names its functions read, and
    what its leaves use (see ``leaf_groups``);
    ``claimed`` are objects of frameworks, ``spans`` the memory they show (first and one past the
    last address); ``made`` ids of objects that exist for the walk only (contents of units).
    """

    roots: tuple[str, ...]
    nbytes: int = 0
    objects: int = 0
    needs: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    unbounded: bool = False
    arrays: list[Any] = field(default_factory=list)
    claimed: list[Any] = field(default_factory=list)
    #: Objects with memory of their own that an object of a framework shows as well.
    shown: list[Any] = field(default_factory=list)
    #: Whether objects that are no arrays show memory (see ``faces``); it is among ``arrays``.
    faces: bool = False
    #: What frameworks noted in the walk, which is the same for all groups of one.
    noted: dict[Any, dict[Any, Any]] = field(default_factory=dict)
    spans: set[tuple[int, int]] = field(default_factory=set)
    inner: dict[int, Any] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    has_namespace: bool = False
    modules: bool = False
    #: Whether a frozenset is in it, which is not among ``inner``.
    unordered: bool = False
    #: Why a part of it cannot be looked at, in words: then it stays where it is.
    unseen: str = ""

    @property
    def key(self) -> frozenset[str]:
        """The set of its roots."""
        return frozenset(self.roots)

    @property
    def names(self) -> tuple[str, ...]:
        """User names in it, sorted."""
        return tuple(names_of(self.roots))

    @property
    def oids(self) -> tuple[str, ...]:
        """Units whose content is in it, sorted."""
        return tuple(root[2:] for root in self.roots if root.startswith("u:"))


def merge(groups: Iterable[Group]) -> Group:
    """Return one group with the roots of all; a single one as it is."""
    parts = list(groups)
    if len(parts) == 1:
        return parts[0]
    out = Group(())
    roots: list[str] = []
    for group in parts:
        roots += group.roots
        out.nbytes += group.nbytes
        out.objects += group.objects
        out.needs |= group.needs
        out.reads |= group.reads
        out.unbounded |= group.unbounded
        out.arrays += group.arrays
        out.claimed += group.claimed
        out.shown += group.shown
        out.faces |= group.faces
        out.noted = group.noted
        out.spans |= group.spans
        out.inner |= group.inner
        out.made |= group.made
        out.has_namespace |= group.has_namespace
        out.modules |= group.modules
        out.unordered |= group.unordered
        out.unseen = out.unseen or group.unseen
    out.roots = tuple(sorted(roots))
    out.needs -= set(out.oids)
    return out


@dataclass
class Held:
    """What leaves (see ``leaves``) of one side keep of what names lead to.

    ``objects`` of names, by ``id``, with the leaf that keeps each; of those ``viewed`` it has views
    of its own.  Roots that are ``stuck`` share with a leaf what cannot even be written in place.
    ``leaves`` are those that live here, ``shares`` by root the names that share an object with one.
    """

    leaves: dict[int, Any] = field(default_factory=dict)
    objects: dict[int, Any] = field(default_factory=dict)
    viewed: set[int] = field(default_factory=set)
    stuck: dict[str, Any] = field(default_factory=dict)
    shares: dict[str, set[str]] = field(default_factory=dict)


@dataclass
class Survey:
    """One walk: groups by root, and the live units."""

    groups: list[Group]
    units: dict[str, Any]
    used_globals: dict[str, set[str]]
    values: Mapping[str, Any]
    held: Held = field(default_factory=Held)
    by_root: dict[str, Group] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for group in self.groups:
            for root in group.roots:
                self.by_root[root] = group

    @functools.cached_property
    def kept(self) -> frozenset[str]:
        """The ids of objects that leaves on the GPU's side keep, as far as is told here."""
        return frozenset(r for group in self.groups for r in group.reads if is_oid(r))

    def reads_of(self, group: Group) -> set[str]:
        """Return the global names that functions reached from a group read."""
        seen: set[int] = set()
        queue = [group]
        out: set[str] = set()
        while queue:
            part = queue.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            out |= part.reads
            queue += [self.by_root["u:" + o] for o in part.needs if "u:" + o in self.by_root]
        return out - _BUILTINS
