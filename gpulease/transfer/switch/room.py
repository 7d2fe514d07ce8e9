"""What to say where a device has no room left: which variables have how much of it."""

from __future__ import annotations

from gpulease.transfer import frameworks
from gpulease.transfer.frameworks.base import OnDevice
from gpulease.transfer.values.side import Side

#: So many are named.
_NAMED = 5


def explain_no_room(side: Side, error: BaseException) -> str:
    """Return who holds the device's memory, where ``error`` says that there is none left; else ''.

    Runs on the main thread, in a cell that fails: names have the values that it had given them.
    """
    for framework in frameworks.active():
        total = framework.used(error) if isinstance(framework, OnDevice) else None
        if total is not None:
            rows = _rows(side, framework)
            named = sum(size for _, size in rows)
            rows = rows[:_NAMED]
            if total > named:
                rows.append(("in no variable", total - named))
            said = "; ".join(f"{label}: {_size(size)}" for label, size in rows)
            return f"In use on the GPU: {said or 'nothing of this notebook'}."
    return ""


def _rows(side: Side, framework: frameworks.Framework) -> list[tuple[str, int]]:
    """Return names that share memory, and the bytes that they have on a device, largest first."""
    assert isinstance(framework, OnDevice)
    rows = []
    values = {**side.withheld, **side.ns}  # what is put away has its memory as well
    names = [*side.names(), *side.withheld]
    for group in side.survey_roots(names, (), values).groups:
        memory: dict[int, int] = {}
        for obj in group.claimed:
            memory |= framework.use_of(obj)
        if memory and group.names:
            rows.append((", ".join(group.names[:3]), sum(memory.values())))
    return sorted(rows, key=lambda row: -row[1])


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 10**8 else f"{count / 1e6:.1f} MB"
