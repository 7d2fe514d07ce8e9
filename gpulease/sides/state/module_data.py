"""Plain data of a person's own modules, which travels as settings do.

These are attributes of the module, and of classes and objects that it holds.  A list, set or dict
is filled and stays the object that it is, because functions of the module may hold it.
"""

from __future__ import annotations

import pickle
import sys
import weakref
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

from gpulease.sides import module_files
from gpulease.sides.state.bindings import Bindings, Times, full_name
from gpulease.sides.state.known_settings import Setting, Values
from gpulease.sides.state.named_modules import attributes_of
from gpulease.sides.state.plain import SCALARS, is_container, plain_bytes, write_in_place
from gpulease.sides.state.stateful import put_state, state_bytes

#: Names of what a module has with attributes, as long as it holds the same things (by id).
_owners: weakref.WeakKeyDictionary[ModuleType, tuple[list[int], list[str]]] = (
    weakref.WeakKeyDictionary()
)
_HOLDERS = frozenset({SimpleNamespace, Namespace})
#: What stands before the module's name in the name of the setting.
_PREFIX = "module "
#: In place of a value that is no more, or no longer plain.
_GONE = b""


def setting_name(module: str) -> str:
    """Return the name of the setting that a module's data is."""
    return _PREFIX + module


def setting_of(name: str, bindings: Bindings) -> Setting | None:
    """Return the setting of this name, None where it is no module's data."""
    if not name.startswith(_PREFIX):
        return None
    data = _Data(name.removeprefix(_PREFIX), bindings)
    return Setting(data.module, data.get, data.put, gone=_GONE)


def owners(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Return the module and what it has with attributes, each with what stands before a name.

    That is the classes that it defines, objects of a person's own classes, and plain holders.
    """
    yield "", module
    held = vars(module)
    ids = [*map(id, held.values())]
    known, names = _owners.get(module, ([], []))
    if ids != known:
        names = [name for name, value in list(held.items()) if _is_owner(module, name, value)]
        _owners[module] = ids, names
    for name in names:
        if name in held:
            yield f"{name}.", held[name]


def _is_owner(module: ModuleType, name: str, value: Any) -> bool:
    if name.startswith("__"):
        return False
    if issubclass(type(value), type):
        return bool(value.__module__ == module.__name__)
    return has_attributes(value)


def has_attributes(value: Any) -> bool:
    """Say whether this is an object of a person's own class, or a plain holder of attributes."""
    kind = type(value)
    own = kind in _HOLDERS or bool(module_files.module_digest(kind.__module__))
    return own and attributes_of(value) is not None


@dataclass
class _Data:
    module: str
    bindings: Bindings
    #: By owner what it held at the last look, by id; the bytes of what was plain of it.
    _last: dict[str, tuple[list[int], dict[str, bytes]]] = field(default_factory=dict)

    def get(self) -> Values:
        """Return by name how often owner and attribute were bound anew, and the plain value."""
        found: Values = {}
        for prefix, owner in owners(sys.modules[self.module]):
            found |= self._of(prefix, owner)
        return found

    def _of(self, prefix: str, owner: Any) -> dict[str, bytes]:
        """Look at what is bound anew, and into what can be changed where it is."""
        held = dict(attributes_of(owner) or {})
        ids = [id(owner), *map(id, held.values())]
        known, data = self._last.get(prefix, ([], {}))
        same = ids == known
        if not same:
            data = {}
        of_owner = self._count(prefix[:-1], owner)
        for name, value in held.items():
            if name.startswith("__") or (same and type(value) in SCALARS):
                continue
            plain, state = plain_bytes(value), None
            if plain is None and (state := state_bytes(value)) is None:
                data.pop(prefix + name, None)
                continue
            stays = state is not None or is_container(value)
            times = self._count(prefix + name, value) if stays else None
            data[prefix + name] = pickle.dumps((of_owner, times, plain, state))
        self._last[prefix] = ids, data
        return data

    def _count(self, name: str, value: Any) -> Times:
        return self.bindings.count(full_name(self.module, name), value)

    def put(self, values: Mapping[str, bytes]) -> None:
        """Set attributes as they are on the other side."""
        there = dict(owners(sys.modules[self.module]))
        for key, data in values.items():
            prefix, dot, name = key.rpartition(".")
            owner = there.get(prefix + dot)
            held = attributes_of(owner)
            if held is None:
                continue
            if data != _GONE:
                of_owner, times, plain, state = pickle.loads(data)
                # Else it is another object there; of the module there is one only.
                if prefix and of_owner != self._count(prefix, owner):
                    continue
                if plain is not None:
                    self._set(owner, held, key, times, pickle.loads(plain))
                elif name in held and self._count(key, held[name]) == times:
                    put_state(held[name], pickle.loads(state))
            elif name in held:
                delattr(owner, name)

    def _set(
        self, owner: Any, held: Mapping[str, Any], key: str, times: Times | None, value: Any
    ) -> None:
        name, old = key.rpartition(".")[2], held.get(key.rpartition(".")[2])
        same = is_container(old) and self._count(key, old) == times
        if same and write_in_place(old, value):
            return
        if isinstance(held, dict) and not isinstance(owner, ModuleType):
            held[name] = value  # whatever its class makes of assignments
        else:
            setattr(owner, name, value)
        if times is not None:  # of a container
            self.bindings.take(full_name(self.module, key), times, value)
