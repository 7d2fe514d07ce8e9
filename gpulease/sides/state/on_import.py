"""Calls back when a module has been imported, before the importing code continues."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call ``then`` once, as soon as ``name`` is imported (not at all where it is already)."""
    waiting = next((f for f in sys.meta_path if isinstance(f, _Waiting) and f.name == name), None)
    if waiting is not None:
        if then not in waiting.then:
            waiting.then.append(then)
    elif name not in sys.modules:
        sys.meta_path.insert(0, _Waiting(name, then))


class _Waiting(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.then = [then]

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """Find ``name`` as everybody would, and have its loader say when it is done."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.then)
        return spec


class _Loader(importlib.abc.Loader):
    """The module's own loader, and what waits for its end."""

    def __init__(self, own: importlib.abc.Loader, then: list[Callable[[], None]]) -> None:
        self._own = own
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._own  # nobody is to meet this one later
        self._own.exec_module(module)
        for then in self._then:
            then()
