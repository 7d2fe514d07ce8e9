"""Keeps what one spawn changed on its spawner from reaching the next.

KubeSpawner and JupyterHub merge the overrides of profiles and groups into the spawner's own
settings in place, and a spawner outlives a spawn that failed.  Settings are taken as configured and
put back, whichever they are.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableSequence, MutableSet
from typing import Any

from traitlets import HasTraits


class Settings:
    """A spawner's configurable settings as they were at one moment."""

    def __init__(self, spawner: HasTraits) -> None:
        self._values = {
            name: _copied(getattr(spawner, name)) for name in spawner.trait_names(config=True)
        }

    def restore(self, spawner: HasTraits) -> list[str]:
        """Put every changed setting back; return the names of those that had changed."""
        changed = [
            name for name, value in self._values.items() if not _same(getattr(spawner, name), value)
        ]
        for name in changed:
            setattr(spawner, name, _copied(self._values[name]))
        return changed


def _copied(value: Any) -> Any:
    """Copy containers all the way down, and nothing else: functions and objects stay themselves.

    (``copy.deepcopy`` would copy a bound method's object, that is the spawner, with its database.)
    """
    if isinstance(value, tuple):  # a named one, too
        return tuple.__new__(type(value), map(_copied, value))
    if not isinstance(value, Mapping | MutableSequence | MutableSet):
        return value
    made = _shallow(value)
    if isinstance(value, Mapping):
        for key in made:
            made[key] = _copied(made[key])
    elif isinstance(value, MutableSequence):
        for index, item in enumerate(made):
            made[index] = _copied(item)
    return made


def _shallow(value: Any) -> Any:
    """Return another container with the same items, of the same type where it can be."""
    if isinstance(value, dict | list | set):
        return copy.copy(value)
    if hasattr(value, "copy"):
        return value.copy()  # such as a dict of what os.environ holds
    return dict(value) if isinstance(value, Mapping) else copy.copy(value)


def _same(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)
