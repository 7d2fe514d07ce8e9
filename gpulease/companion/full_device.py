"""Who holds a device's memory, where a cell's error says that there is no room left on it."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator, Mapping
from typing import Any

from gpulease.transfer import ways

#: So many are named.
_NAMED = 5
#: What leads to other variables, or to all of a library.
_NOT_INTO = (type, types.ModuleType, types.FunctionType, types.FrameType)


def explain(values: Mapping[str, Any], error: BaseException) -> str:
    """Return who holds the device's memory, where ``error`` says that there is none left; else ''.

    Runs on the main thread, in a cell that fails: nothing is copied from the device.
    """
    ways.open_rooms()
    for device in ways.devices:
        total = device.used(error)
        if total is not None:
            rows = sorted(_rows(values, device), key=lambda row: -row[1])
            rest = total - sum(size for _, size in rows)
            rows = rows[:_NAMED] + ([("in no variable", rest)] if rest > 0 else [])
            said = "; ".join(f"{label}: {_size(size)}" for label, size in rows)
            return f"In use on the GPU: {said or 'nothing of this notebook'}."
    return ""


def _rows(values: Mapping[str, Any], device: ways.Device) -> Iterator[tuple[str, int]]:
    """Yield names that share memory of a device, and the bytes of it."""
    groups: list[tuple[list[str], dict[int, int]]] = []
    for name, value in values.items():
        names, memory = [name], _memory(value, device)
        shared = [each for each in groups if not each[1].keys().isdisjoint(memory)]
        for each in shared:
            groups.remove(each)
            names, memory = each[0] + names, each[1] | memory
        if memory:
            groups.append((names, memory))
    return ((", ".join(names[:3]), sum(memory.values())) for names, memory in groups)


def _memory(value: Any, device: ways.Device) -> dict[int, int]:
    """Return the bytes of a device that a value leads to, by address."""
    found: dict[int, int] = {}
    seen: set[int] = set()
    objects = [value]
    kept = []  # else an address would be another object's
    while objects:
        fresh = {id(each): each for each in objects if id(each) not in seen}
        seen |= fresh.keys()
        kept.append(fresh)
        for each in fresh.values():
            found |= device.use_of(each)
        into = [each for each in fresh.values() if not isinstance(each, _NOT_INTO)]
        objects = [each for each in gc.get_referents(*into) if gc.is_tracked(each) or _may(each)]
    return found


def _may(obj: Any) -> bool:
    return type(obj).__module__ != "builtins"


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 10**8 else f"{count / 1e6:.1f} MB"
