"""Objects that a person's own modules hold by name: each side's is known by that name to the other.

So a variable that is such an object (``from config import cfg``) is the very object that the
module's functions use, on both sides.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Collection
from contextlib import suppress
from types import ModuleType
from typing import Any

from gpulease.sides.hushed import import_quietly
from gpulease.sides.state.bindings import Bindings, Times, full_name
from gpulease.sides.state.deep_marks import has_state
from gpulease.sides.state.module_data import owners
from gpulease.sides.state.named_modules import attributes_of
from gpulease.sides.state.own_modules import OwnModules
from gpulease.sides.state.stateful import is_stateful
from gpulease.transfer.registry import OF_MODULES, Registry


class OwnObjects:
    """One side's: enters in ``registry`` what the modules hold."""

    def __init__(self, registry: Registry, own: OwnModules, bindings: Bindings) -> None:
        self._registry = registry
        self._own = own
        self._bindings = bindings
        self._seen: weakref.WeakSet[ModuleType] = weakref.WeakSet()
        #: By module what it held at the last look, by id.
        self._held: dict[str, list[list[int]]] = {}

    def is_shared(self, name: str, known: Collection[str]) -> bool:
        """Say whether an attribute is of an object that is among these, which both sides know."""
        parts = name.split(".")
        cuts = itertools.combinations(range(1, len(parts) + 1), 2)
        spots = (full_name(".".join(parts[:n]), ".".join(parts[n:end])) for n, end in cuts)
        starts = tuple(f"{OF_MODULES}{spot}/" for spot in spots)
        return any(oid.startswith(starts) for oid in known)

    def holds(self, value: Any) -> bool:
        """Say whether this is an object that a module holds by name."""
        return self._registry.of_module(value) is not None

    def bring(self, oid: str) -> None:
        """Import the module that holds the object of this id, if that is what it is.

        In one process it would be imported.  One that does not import here is nobody's on this
        side.
        """
        if not oid.startswith(OF_MODULES):
            return
        name, _, times = oid.removeprefix(OF_MODULES).rpartition("/")
        module, _, attribute = name.partition("/")
        with suppress(Exception):
            import_quietly(module)
        self.look()
        if self._registry.get(oid) is None and module in self._own.names():
            self._call_as_there(oid, module, attribute, times)

    def _call_as_there(self, oid: str, module: str, attribute: str, times: str) -> None:
        """Enter an object, that several modules hold, by the name that it has on the other side."""
        for prefix, owner in owners(sys.modules[module]):
            name = attribute.removeprefix(prefix)
            value = (attributes_of(owner) or {}).get(name)
            if prefix + name == attribute and self.holds(value):
                if _text(self._bindings.count(full_name(module, attribute), value)) == times:
                    self._registry.bind(oid, value)
                return

    def look(self) -> None:
        """Enter what the modules hold now.

        A module that is new here may find that an object of it has come before it, with a variable:
        it takes that one.
        """
        for name in self._own.names():
            module = sys.modules[name]
            new = module not in self._seen
            having = list(owners(module))
            ids = [[*map(id, (attributes_of(owner) or {}).values())] for _, owner in having]
            if ids == self._held.get(name) and not new:
                continue
            self._held[name] = ids
            for prefix, owner in having:
                held = list((attributes_of(owner) or {}).items())
                for attribute, value in held:
                    if not attribute.startswith("__") and _may_be_one(value):
                        self._enter(full_name(name, prefix + attribute), owner, value, new=new)
                if prefix and not issubclass(type(owner), type):
                    self._enter(full_name(name, prefix[:-1]), module, owner, new=new)
            self._seen.add(module)

    def _enter(self, name: str, owner: Any, value: Any, *, new: bool) -> None:
        times = self._bindings.count(name, value)
        registry, oid = self._registry, f"{OF_MODULES}{name}/{_text(times)}"
        if registry.find(value) is not None:
            return
        known = registry.get(oid)
        if new and type(known) is type(value):
            setattr(owner, name.split("/")[1].rpartition(".")[2], known)
            self._bindings.take(name, times, known)
        else:
            registry.bind(oid, value)


def _may_be_one(value: Any) -> bool:
    return has_state(value) or is_stateful(type(value))


def _text(times: Times) -> str:
    return ".".join(map(str, times))
