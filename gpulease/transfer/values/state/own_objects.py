"""Objects that a person's own modules hold by name: each side's is known by that name to the other.

So a variable that is such an object (``from config import cfg``) is the very object that the
module's functions use, on both sides.
"""

from __future__ import annotations

import sys
import weakref
from types import ModuleType
from typing import Any

from gpulease.transfer.registry import Registry
from gpulease.transfer.values import module_files

from .module_data import owners
from .named_modules import attributes_of

#: Where an id begins that is made of a module's name and an attribute's.
_PREFIX = "h" + "0" * 8 + "."
_KINDS = frozenset({list, dict, set, bytearray})


def is_own(oid: str) -> bool:
    """Say whether an id is that of an object which a module holds by name."""
    return oid.startswith(_PREFIX)


class OwnObjects:
    """One side's: enters in ``registry`` what the modules hold."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._seen: weakref.WeakSet[ModuleType] = weakref.WeakSet()

    def look(self) -> None:
        """Enter what the modules hold now.

        A module that is new here may find that an object of it has come before it, with a variable:
        it takes that one.
        """
        for name in module_files.own_modules():
            module = sys.modules[name]
            new = module not in self._seen
            for prefix, owner in list(owners(module)):
                held = list((attributes_of(owner) or {}).items())
                for attribute, value in held:
                    if type(value) in _KINDS and not attribute.startswith("__"):
                        self._enter(f"{name}.{prefix}{attribute}", owner, value, new=new)
                if prefix and not issubclass(type(owner), type):
                    self._enter(f"{name}.{prefix}".removesuffix("."), module, owner, new=new)
            self._seen.add(module)

    def _enter(self, name: str, owner: Any, value: Any, *, new: bool) -> None:
        registry, oid = self._registry, _PREFIX + name
        if registry.find(value) is not None:
            return
        known = registry.get(oid)
        if new and type(known) is type(value):
            setattr(owner, name.rpartition(".")[2], known)
        else:
            registry.bind(oid, value)
