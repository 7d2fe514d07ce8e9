"""Keeps what one spawn changed on its spawner from reaching the next.

KubeSpawner and JupyterHub merge the overrides of profiles and groups into the spawner's own
settings in place, and a spawner outlives a spawn that failed.  This module owns taking the settings
as configured and putting them back; it knows no setting by name.
"""

from __future__ import annotations

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
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in {list, tuple, set}:
        return type(value)(_copied(item) for item in value)
    return value


def _same(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)
