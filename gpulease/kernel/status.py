"""The text of ``%gpu``: where the lease and each variable stand.

Pure: a lease's view and the variables' rows in, lines for a person out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from gpulease.kernel.clock import clock
from gpulease.kernel.wait import amount
from gpulease.protocol.service import ConnectionView, LeaseView
from gpulease.sizes import memory_text, size_text
from gpulease.transfer.api import Place, VariableStatus

_ENDINGS = {
    "released": "released",
    "drained": "released at the latest",
    "idle_warning": "idle warning",
    "exam": "the exam ends",
    "seat": "your seat ends",
    "reserved": "needed for a reservation",
    "hard_limit": "hard limit",
    "budget": "GPU-hours used up",
}
NO_LEASE = "No GPU lease. %%gpu runs a cell on a GPU, and asks for one by itself."
NO_HUB = "No GPU here, and no hub to ask: %gpu connect local runs GPU cells in a companion."
_PLACES = {
    Place.HOME: "in your notebook",
    Place.BOTH: "in your notebook and on the GPU",
    Place.GPU: "on the GPU",
    Place.LOST: "lost",
    Place.CONFLICTED: "changed on both sides",
    Place.PARKED: "parked for the next lease",
}
#: As the pages call them.
_STATES = {"warned": "ends soon", "draining": "saving variables"}
_IN_USE = {"busy": "in use", "quiet": "cell running, GPU idle", "idle": "idle"}
_ALREADY_SAID = ("Run a cell with %%gpu, or %gpu on for every cell.",)


def lease_lines(lease: LeaseView) -> list[str]:
    """Say what is held, its state and why, the time left, its use, and what can be done."""
    what = lease["gpu_class"]
    if lease["count"] > 1:
        what = amount(what, lease["count"], lease.get("nodes", 1))
    if percent := lease.get("percent"):
        what = f"{what}, {percent}% of a card"
    if lease["simulated"]:
        what += " (simulated)"
    lines = [f"{what}: {state_word(lease)}. {lease['sentence']}".rstrip()]
    facts = _facts(lease)
    if facts:
        line = ", ".join(facts)
        lines.append(f"{line[0].upper()}{line[1:]}.")
    if lease["next_step"] and lease["next_step"] not in _ALREADY_SAID:
        lines.append(lease["next_step"])
    return lines


def state_word(lease: LeaseView) -> str:
    """Return what a lease is doing, in the word that the pages have for it."""
    state = lease["state"]
    if state == "active":
        return _IN_USE.get(lease["verdict"], state)
    if state == "warned" and lease["reason"] in ("idle", "quiet"):
        return "idle warning"
    return _STATES.get(state, state)


def _facts(lease: LeaseView) -> list[str]:
    facts = []
    if lease["utilisation"] is not None:
        facts.append(f"GPU use {lease['utilisation']:.0%}")
    if (used := lease.get("memory_used")) is not None:
        whole = sum(device["memory"] for device in lease["devices"])
        facts.append(f"{memory_text(used, whole)} GPU memory in use")
    if lease["ends_at"] and (what := _ENDINGS.get(lease["ends_by"])):
        left = time_left(lease["ends_at"], datetime.now(UTC))
        facts.append(f"{what} in {left} ({clock(lease['ends_at'])})")
    if (budget := lease.get("budget")) is not None:
        facts.append(f"{budget['left']:g} of {budget['of']:g} GPU-hours of its budget left")
    return facts


def connection_line(view: ConnectionView) -> str:
    """Say what a companion without a lease is."""
    simulated = " (simulated)" if view["simulated"] else ""
    return f"{view['gpu_class']}{simulated}: connected without a hub, no time limit."


def sticky_line(which: str) -> str:
    """Say where the next cells run."""
    if which == "auto":
        return "Cells that use a GPU library run on the GPU, the others here; %gpu off ends that."
    if which == "all":
        return "Every cell runs on the GPU; %gpu off ends that, %%cpu runs one cell here."
    return "Cells run here; %%gpu runs one on the GPU, %gpu on all of them."


def time_left(at: str, now: datetime) -> str:
    """Return ``7 h 59 min``, ``12 min`` or ``40 s`` until ``at``."""
    seconds = max(0, int((datetime.fromisoformat(at) - now).total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def variable_lines(rows: Sequence[VariableStatus], most: int | None = None) -> list[str]:
    """Return the table of variables; modules are named in one line below.

    What a person may have to act on comes first (it cannot travel, is lost, differs), then what
    only the GPU has, then the largest; ``most`` bounds the others, and leaves out functions and
    classes, which are where the cells that define them ran.
    """
    modules = sorted(row.name for row in rows if row.type_name == "module" and not row.blocker)
    ordered = sorted((row for row in rows if row.name not in modules), key=_weight)
    if most is not None:
        ordered.sort(key=_is_code)
    troubled = sum(_weight(row)[0] == 0 for row in ordered)
    shown = ordered if most is None else ordered[: max(most, troubled)]
    lines = []
    if shown:
        table = [("variable", "type", "size", "newest value"), *(_row(row) for row in shown)]
        widths = [max(len(row[column]) for row in table) for column in range(3)]
        for number, (name, kind, size, place) in enumerate(table):
            cells = [name.ljust(widths[0]), kind.ljust(widths[1]), size.rjust(widths[2]), place]
            lines.append("  ".join(cells).rstrip())
            if number and shown[number - 1].blocker:
                lines.append(f"    cannot travel: {shown[number - 1].blocker}")
            if number and (cell := shown[number - 1].older) is not None:
                lines.append(f"    your notebook's last whole value is of after cell [{cell}]")
    if len(shown) < len(ordered):
        lines.append(f"And {len(ordered) - len(shown)} more: %gpu variables lists all.")
    if modules:
        lines.append(f"Imported: {', '.join(modules)}.")
    return lines


def _row(row: VariableStatus) -> tuple[str, str, str, str]:
    size = "" if row.size is None else size_text(row.size)
    if row.shared_with:
        size = f"in {row.shared_with}"
    return row.name, row.type_name, size, _PLACES[row.place]


def _is_code(row: VariableStatus) -> bool:
    """Say whether a row is of code that is in the notebook."""
    fine = not row.blocker and row.place in (Place.HOME, Place.BOTH)
    return fine and row.type_name in ("function", "type", "ABCMeta", "EnumType", "MetaHasTraits")


def _weight(row: VariableStatus) -> tuple[int, int, str]:
    """Return the place in the table: lower is sooner."""
    if row.blocker or row.place in (Place.LOST, Place.CONFLICTED, Place.PARKED):
        rank = 0
    else:
        rank = 1 if row.place is Place.GPU else 2
    return rank, -(row.size or 0), row.name
