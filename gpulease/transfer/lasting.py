"""What installed libraries have for good, on both sides: it is named, and never walked into.

Else two figures would share a marker's path or a list of rcParams, and be one component.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from typing import Any

from gpulease.sides.libraries import package_of
from gpulease.sides.looks import ask, is_a

from . import own

#: By class: how many modules there were at the last look, and where instances are found.
_seen: weakref.WeakKeyDictionary[type, tuple[int, dict[int, tuple[str, str]]]]
_seen = weakref.WeakKeyDictionary()


def instances(kind: type) -> dict[int, tuple[str, str]]:
    """Return where its own library has instances of a class: id -> module and path there."""
    count, found = _seen.get(kind, (0, {}))
    if count != len(sys.modules):
        found = _look(kind)
        _seen[kind] = len(sys.modules), found
    return found


def _look(kind: type) -> dict[int, tuple[str, str]]:
    package = package_of(kind)
    found: dict[int, tuple[str, str]] = {}
    if own.is_own(kind.__module__):
        return found  # what is in it travels
    for name, module in list(sys.modules.items()):
        space = getattr(module, "__dict__", None)
        if name.partition(".")[0] != package or package == "__main__" or type(space) is not dict:
            continue
        for key, value in list(space.items()):
            if type(value) is kind:
                found[id(value)] = name, key
            elif is_a(value, type) and ask(value, "__module__") == name:
                for inner, part in list(vars(value).items()):
                    if type(part) is kind:
                        found[id(part)] = name, f"{key}.{inner}"
    return found


#: Modules whose tables of colours every colour map takes as they are.
_TABLES = ("matplotlib._cm", "matplotlib._cm_listed")


def settings() -> dict[int, str]:
    """Return what artists of matplotlib take as it is, by id: lists of rcParams, tables of colours.

    Each has a key that says where it is found.
    """
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is None:
        return {}
    items = dict.items(matplotlib.rcParams)
    found = {id(value): f"rc:{key}" for key, value in items if type(value) is list}
    for name in _TABLES:
        for key, value in list(vars(sys.modules.get(name, matplotlib)).items()):
            if type(value) in (list, dict) and key.endswith("_data"):
                found[id(value)] = f"rc:{name}:{key}"
    return found


def setting(key: str) -> Any:
    """Return what ``settings`` gave this key."""
    name, _, table = key.removeprefix("rc:").partition(":")
    if table:
        return vars(importlib.import_module(name))[table]
    rc: Any = importlib.import_module("matplotlib").rcParams
    return dict.__getitem__(rc, name)
