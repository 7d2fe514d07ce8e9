"""Which home cell gave a name its value, for messages about values that are on the wrong device.

A name is remembered with the ``id`` of what it was bound to, so no value is kept alive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpulease.sides.libraries import library

#: What torch says of tensors that are not on one device.
_MISMATCH = re.compile(
    r"all tensors to be on the same device|type \((torch\.\w+\.)?\w*Tensor\) .*should be the same"
)


class Origins:
    """Names that home cells bound, while torch is imported; main thread only."""

    def __init__(self, ns: Mapping[str, Any]) -> None:
        self._ns = ns
        self._bound: dict[str, int] = {}
        self._cells: dict[str, int] = {}

    def cell_begins(self) -> None:
        """What changed until here came from the companion."""
        for name in self._changed():
            self._cells.pop(name, None)

    def cell_ended(self, execution_count: int) -> None:
        """What changed since the home cell began, it bound."""
        for name in self._changed():
            self._cells[name] = execution_count

    def _changed(self) -> list[str]:
        if library("torch") is None:
            return []
        now = {name: id(value) for name, value in list(self._ns.items())}
        before, self._bound = self._bound, now
        return [name for name, number in now.items() if before.get(name) != number]

    def explain(self, error: str, names: Iterable[str]) -> str:
        """Say which of ``names`` home made on the CPU, where ``error`` is of devices; else ''."""
        if library("torch") is None or not _MISMATCH.search(error):
            return ""
        from gpulease.transfer.torch import devices

        found = sorted(
            name
            for name in names
            if name in self._cells and devices.is_of_the_cpu(self._ns.get(name))
        )
        return " ".join(
            f"{name} was computed in your notebook by cell [{self._cells[name]}] and is on the "
            f"CPU; {name} = {name}.to(...) puts it on the GPU."
            for name in found[:3]
        )
