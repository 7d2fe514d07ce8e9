"""Plain data of a person's own modules and of their classes, which travels as settings do.

Owns which attributes these are, and how one is set: a list, set or dict stays the object that it
is, for functions of the module may hold it.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from .known_settings import Setting, Values
from .plain import plain_bytes, write_in_place

#: What stands before the module's name in the name of the setting.
_PREFIX = "module "
#: In place of a value that is no more, or no longer plain.
_GONE = b""


def setting_name(module: str) -> str:
    """Return the name of the setting that a module's data is."""
    return _PREFIX + module


def setting_of(name: str) -> Setting | None:
    """Return the setting of this name, None where it is no module's data."""
    if not name.startswith(_PREFIX):
        return None
    module = name.removeprefix(_PREFIX)
    return Setting(module, partial(_get, module), partial(_put, module), gone=_GONE)


def owners(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Return the module and the classes that it defines, each with what stands before a name."""
    yield "", module
    for name, value in list(vars(module).items()):
        if issubclass(type(value), type) and value.__module__ == module.__name__:
            yield f"{name}.", value


def _get(module: str) -> Values:
    found: Values = {}
    for prefix, owner in owners(sys.modules[module]):
        for name, value in list(vars(owner).items()):
            if not name.startswith("__") and (data := plain_bytes(value)) is not None:
                found[prefix + name] = data
    return found


def _put(module: str, values: Mapping[str, bytes]) -> None:
    there = dict(owners(sys.modules[module]))
    for key, data in values.items():
        prefix, dot, name = key.rpartition(".")
        owner = there.get(prefix + dot)
        if owner is None:
            continue
        if data == _GONE:
            if name in vars(owner):
                delattr(owner, name)
            continue
        value = pickle.loads(data)
        if not write_in_place(vars(owner).get(name), value):
            setattr(owner, name, value)
