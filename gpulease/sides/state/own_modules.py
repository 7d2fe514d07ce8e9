"""Which modules of the person's own the notebook has to do with."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from gpulease.sides import module_files
from gpulease.sides.looks import ask


class OwnModules:
    """Those that were imported after the notebook's first cell, and those that it has a part of."""

    def __init__(self) -> None:
        self._before = set(module_files.own_modules())

    def names(self) -> list[str]:
        """Return those that are imported now."""
        return [name for name in module_files.own_modules() if name not in self._before]

    def notice(self, namespace: Mapping[str, Any]) -> None:
        """Look at what the notebook has of those that were imported before it began."""
        if self._before:
            for value in list(namespace.values()):
                self._before -= _modules_of(value)


def _modules_of(value: Any) -> set[Any]:
    if issubclass(type(value), ModuleType):
        return {vars(value).get("__name__")}
    if issubclass(type(value), type | FunctionType):
        return {ask(value, "__module__")}
    return {ask(type(value), "__module__")}
