"""How much memory this process may still take, by cgroup (v1 or v2), rlimit and the machine.

The check keeps a value from killing the kernel that accepts it.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

Available = Callable[[], int]
_ROOT = Path("/sys/fs/cgroup")
#: Version 1 writes a number of this size where there is no bound.
_UNBOUNDED = 2**60


class _Names(NamedTuple):
    """What a group's files are called, and the line of ``memory.stat`` that can be reclaimed."""

    limit: str
    usage: str
    inactive: str


_VERSION_1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Names("memory.max", "memory.current", "inactive_file")


def available(root: Path = _ROOT, proc: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes this process may still allocate: the least of all limits found."""
    found = [int(psutil.virtual_memory().available)]
    for group, names in _groups(root, proc):
        bound = _number(group / names.limit)
        if bound is None or bound >= _UNBOUNDED:
            continue  # each GPU cell asks: what bounds nothing costs one small file
        used = _number(group / names.usage)
        if used is not None:
            reclaimable = _stat(group / "memory.stat", names.inactive)
            found.append(max(0, bound - used + reclaimable))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found.append(max(0, soft - int(psutil.Process().memory_info().vms)))
    return min(found)


def _groups(root: Path, proc: Path) -> Iterator[tuple[Path, _Names]]:
    """Yield each group above this process, and what its files are called there."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "", "")[:3]
        if not path:
            continue  # not a line of this file's format
        version2 = controllers == ""
        if not version2 and "memory" not in controllers.split(","):
            continue
        base = root if version2 else root / "memory"
        folder = base / path.lstrip("/")
        for place in (folder, *folder.parents):
            if place == base.parent:
                break
            yield place, _VERSION_2 if version2 else _VERSION_1


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _stat(path: Path, key: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        name, _, value = line.partition(" ")
        if name == key and value.isdigit():
            return int(value)
    return 0
