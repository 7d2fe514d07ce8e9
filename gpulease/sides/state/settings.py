"""Settings inside modules that cells change: a plain kernel's next cell would see them.

Only those travel that changed since their module was imported here: each side keeps what it began
with.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from gpulease.sides.state.known_settings import SETTINGS, Setting
from gpulease.sides.state.on_import import when_imported


class Settings:
    """Changed settings of one process."""

    def __init__(self) -> None:
        self._first: dict[str, dict[str, bytes]] = {}
        self._told: dict[str, dict[str, bytes]] = {}
        self._waiting: dict[str, dict[str, bytes]] = {}
        #: What was looked at last, all keys in one: it is asked for at every cell.
        self._last: dict[str, bytes] = {}
        for setting in SETTINGS.values():
            if setting.module in sys.modules:
                self._begin(setting.module)
            elif setting.first is None:
                when_imported(setting.module, partial(self._begin, setting.module))

    def _begin(self, module: str) -> None:
        """Remember what a module has before any code of the notebook could change it."""
        for name, setting in SETTINGS.items():
            if setting.module == module and setting.first is None:
                with contextlib.suppress(Exception):  # another version may have it elsewhere
                    self._first[name] = _pickled(setting.get())
        if self._waiting:
            self.settle()

    def capture(self) -> dict[str, dict[str, bytes]]:
        """Return what changed, by setting and key; pickled."""
        for name, setting in SETTINGS.items():
            if setting.first is not None:
                self._first.setdefault(name, _pickled(setting.first))
            first = self._first.get(name)
            ready = first is not None and setting.module in sys.modules
            if ready and name not in self._waiting and _may(setting):
                self._look(name, setting, first or {})
        return {name: dict(sorted(told.items())) for name, told in sorted(self._told.items())}

    def _look(self, name: str, setting: Setting, first: dict[str, bytes]) -> None:
        try:
            values = setting.get()
        except Exception:  # noqa: BLE001 - whatever a library makes of being asked: nothing is told
            return
        all_of_it = b""
        with contextlib.suppress(Exception):  # then it is looked at key by key each time
            all_of_it = pickle.dumps(values, 5)
        if all_of_it and all_of_it == self._last.get(name):
            return
        self._last[name] = all_of_it
        now = _pickled(values)
        told = self._told.get(name, {})
        now = dict.fromkeys(told, pickle.dumps(setting.gone, 5)) | now
        changed = {key: data for key, data in now.items() if data != first.get(key) or key in told}
        if changed:
            self._told[name] = told | changed

    def apply(self, changed: Mapping[str, Mapping[str, bytes]]) -> None:
        """Take over what the other side told; what cannot be set yet waits."""
        for name, values in changed.items():
            known = self._told.setdefault(name, {})
            fresh = {key: data for key, data in values.items() if known.get(key) != data}
            known.update(values)
            if fresh and name in SETTINGS:
                self._waiting.setdefault(name, {}).update(fresh)
        self.settle()

    def settle(self) -> None:
        """Set what waits for its module or for the main thread.

        To set one may import a module, and that comes here again, or another thread does.
        """
        for name in list(self._waiting):
            setting = SETTINGS[name]
            if setting.module not in sys.modules or not _may(setting):
                continue
            self._last.pop(name, None)
            for key, data in self._waiting.pop(name, {}).items():
                # What another version of the library does not know stays as it is there.
                with contextlib.suppress(Exception):
                    setting.put({key: pickle.loads(data)})


def _may(setting: Setting) -> bool:
    return not setting.of_thread or threading.current_thread() is threading.main_thread()


def _pickled(values: Mapping[str, Any]) -> dict[str, bytes]:
    out = {}
    for key, value in values.items():
        with contextlib.suppress(Exception):  # a formatter that is a lambda stays where it is
            out[key] = pickle.dumps(value, 5)
    return out
