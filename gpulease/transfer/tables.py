"""Objects that each side has one of, by an id that both sides use.

Classes of the notebook, ``object()`` markers, type variables, NaNs and what stays are referred to
by such ids in every pickle.  Equal ids mean the counterparts of one object.
"""

from __future__ import annotations

import gc
import itertools
import operator
import secrets
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar


class Counterparts:
    """Id to object and back; an object that only this table holds goes at the next ``prune``."""

    def __init__(self, prefix: str = "", *, keeps: bool = False) -> None:
        self._prefix = prefix or secrets.token_hex(4)
        self._count = 0
        #: Whether objects are kept even where they can be referred to weakly.
        self._keeps = keeps
        self._strong: dict[str, Any] = {}
        self._weak: dict[str, Callable[[], Any]] = {}
        self._ids: dict[int, str] = {}

    def find(self, obj: Any) -> str | None:
        """Return the id of ``obj``, None where it has none."""
        oid = self._ids.get(id(obj))
        return oid if oid is not None and self.get(oid) is obj else None

    def id_of(self, obj: Any) -> str:
        """Return the id of ``obj``, a new one where it has none."""
        oid = self.find(obj)
        if oid is None:
            self._count += 1
            oid = f"{self._prefix}.{self._count}"
            self.bind(oid, obj)
        return oid

    def get(self, oid: str) -> Any:
        """Return the object with this id, None where there is none any more."""
        reference = self._weak.get(oid)
        return self._strong.get(oid) if reference is None else reference()

    def bind(self, oid: str, obj: Any) -> None:
        """Let ``oid`` be the id of ``obj``."""
        self._ids[id(obj)] = oid
        if not self._keeps:
            try:
                self._weak[oid] = weakref.ref(obj)
            except TypeError:
                pass
            else:
                return
        self._strong[oid] = obj

    def drop(self, oid: str) -> None:
        """Forget an object."""
        self._strong.pop(oid, None)
        self._weak.pop(oid, None)

    def values(self) -> Iterator[Any]:
        """Return what the table holds strongly."""
        return iter(self._strong.values())

    def everything(self) -> list[Any]:
        """Return all objects that have an id."""
        return [obj for oid in (*self._strong, *self._weak) if (obj := self.get(oid)) is not None]

    def prune(self) -> None:
        """Forget objects that are gone, or that nothing else holds."""
        counts = references(self._strong)
        for oid in [oid for oid, count in counts.items() if not count]:
            del self._strong[oid]
        for oid in [oid for oid, reference in self._weak.items() if reference() is None]:
            del self._weak[oid]
        alive = self._strong.keys() | self._weak.keys()
        self._ids = {key: oid for key, oid in self._ids.items() if oid in alive}


K = TypeVar("K")


def references(objects: Mapping[K, Any], keys: Iterable[K] | None = None) -> dict[K, int]:
    """Return how many references to each object there are besides its entry in ``objects``.

    ``keys`` chooses some of them.  Where an object is in ``objects`` twice, the second entry
    counts.
    """
    chosen = objects if keys is None else keys
    return {key: sys.getrefcount(objects[key]) - _OWN for key in chosen}


def counted(objects: list[Any]) -> list[int]:
    """Return how many references to each object there are besides its entry in ``objects``."""
    return list(map(operator.sub, map(sys.getrefcount, objects), itertools.repeat(_OWN_OF_LIST)))


#: The entry itself and what the call adds: of a mapping, and of a list.
_OWN = _OWN_OF_LIST = 0
_OWN = references({0: object()})[0]
_OWN_OF_LIST = counted([object()])[0]


def may_be_inner(obj: Any) -> bool:
    """Say whether an object may be part of another one alone: no class or module, nor their own."""
    if type(obj) is dict:  # not a module's, which functions hold: nor that of ``builtins``
        return "__builtins__" not in obj and "__spec__" not in obj
    return gc.is_tracked(obj) and not isinstance(obj, type | types.ModuleType)
