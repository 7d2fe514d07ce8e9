"""How much memory this process may still take, by cgroup (v1 or v2), rlimit and the machine.

Owns the check that keeps a value from killing the kernel that accepts it.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import psutil

Available = Callable[[], int]
_ROOT = Path("/sys/fs/cgroup")


def available(root: Path = _ROOT, proc: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes this process may still allocate: the least of all limits found."""
    found = [int(psutil.virtual_memory().available)]
    for limit, usage, inactive in _cgroup_files(root, proc):
        bound = _number(limit)
        used = _number(usage)
        if bound is not None and used is not None and bound < 2**60:
            found.append(max(0, bound - used + inactive))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found.append(max(0, soft - int(psutil.Process().memory_info().vms)))
    return min(found)


def _cgroup_files(root: Path, proc: Path) -> list[tuple[Path, Path, int]]:
    """Return limit file, usage file and reclaimable bytes of each group above this process."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return []
    out = []
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "", "")[:3]
        if not path:
            continue  # not a line of this file's format
        version2 = controllers == ""
        if not version2 and "memory" not in controllers.split(","):
            continue
        base = root if version2 else root / "memory"
        names = (
            ("memory.max", "memory.current", "inactive_file")
            if version2
            else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        )
        folder = base / path.lstrip("/")
        for place in (folder, *folder.parents):
            if place == base.parent:
                break
            reclaim = _stat(place / "memory.stat", names[2])
            out.append((place / names[0], place / names[1], reclaim))
    return out


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
