"""Plain data of a person's own modules, which travels as settings do.

Owns whose attributes these are (the module's, and those of classes and objects that it holds), and
how one is set: a list, set or dict stays the object that it is, for functions of the module may
hold it.
"""

from __future__ import annotations

import pickle
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

from gpulease.transfer.values import module_files

from .known_settings import Setting, Values
from .named_modules import attributes_of
from .plain import plain_bytes, write_in_place

_HOLDERS = frozenset({SimpleNamespace, Namespace})
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
    """Return the module and what it has with attributes, each with what stands before a name.

    That is the classes that it defines, objects of a person's own classes, and plain holders.
    """
    yield "", module
    for name, value in list(vars(module).items()):
        if issubclass(type(value), type):
            held = value.__module__ == module.__name__
        else:
            kind = type(value)
            own = kind in _HOLDERS or bool(module_files.module_digest(kind.__module__))
            held = own and attributes_of(value) is not None
        if held and not name.startswith("__"):
            yield f"{name}.", value


def _get(module: str) -> Values:
    found: Values = {}
    for prefix, owner in owners(sys.modules[module]):
        for name, value in list((attributes_of(owner) or {}).items()):
            if not name.startswith("__") and (data := plain_bytes(value)) is not None:
                found[prefix + name] = data
    return found


def _put(module: str, values: Mapping[str, bytes]) -> None:
    there = dict(owners(sys.modules[module]))
    for key, data in values.items():
        prefix, dot, name = key.rpartition(".")
        owner = there.get(prefix + dot)
        held = attributes_of(owner)
        if held is None:
            continue
        if data == _GONE:
            if name in held:
                delattr(owner, name)
            continue
        value = pickle.loads(data)
        if write_in_place(held.get(name), value):
            continue
        if isinstance(held, dict) and not isinstance(owner, ModuleType):
            held[name] = value  # whatever its class makes of assignments
        else:
            setattr(owner, name, value)
