"""Outcomes of replays as a table for people: a column for each policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpulease.policy.explanation.catalogue import REFUSALS
from gpulease.simulate.outcome import Expected, Outcome, Waits

#: By figure, the least and the most by which a policy differs from another.
Range = Mapping[str, Mapping[str, float | None]]
_Row = tuple[str, Callable[[Outcome], str]]
#: The figures whose range is told, with their titles and decimals.
_RANGED = (
    ("held_hours", "GPU-hours held", 1),
    ("p50", "seconds that half of the waits stay below", 0),
    ("p95", "seconds that 19 of 20 waits stay below", 0),
    ("reclaims", "reclaims", 0),
    ("false_reclaims", "false reclaims", 0),
    ("reattaches", "asked again in a session", 0),
)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of outcomes of one trace, by project below."""
    rows: list[_Row] = [
        ("GPUs, sessions", lambda o: f"{o.gpus}, {o.sessions}"),
        ("GPU-hours held", lambda o: f"{o.held_hours:.1f}"),
        ("  of which used", lambda o: f"{o.busy_hours:.1f}{_share(o.busy_hours, o.held_hours)}"),
        ("  held per session instead", lambda o: f"{o.session_hours:.1f}"),
        ("  saved", lambda o: f"{o.saved_hours:.1f}{_share(o.saved_hours, o.session_hours)}"),
        ("waits: asked, served", lambda o: f"{o.waits.asked}, {o.waits.served}"),
        ("  given up, open", lambda o: f"{o.waits.given_up}, {o.waits.open}"),
        ("  p50, p95", lambda o: _waits(o.waits)),
        ("  started in the time told", lambda o: _within(o.expected)),
        ("reclaims", lambda o: str(o.reclaims)),
        ("  false (wanted in a minute)", lambda o: str(o.false_reclaims)),
        ("asked again in a session", lambda o: str(o.reattaches)),
        ("fairness (Jain)", lambda o: "-" if o.jain is None else f"{o.jain:.3f}"),
    ]
    rows[6:6] = _refused(outcomes)
    if any(o.ready_hours for o in outcomes):
        rows.insert(2, ("  by pods that stood ready", lambda o: f"{o.ready_hours:.1f}"))
    if any(o.added_hours for o in outcomes):
        rows.insert(2, ("  of added nodes, used or not", lambda o: f"{o.added_hours:.1f}"))
    names = sorted({each.project for o in outcomes for each in o.projects})
    if len(names) > 1:
        for name in names:
            rows += _project(name)
    lines = [["", *(o.name or "policy" for o in outcomes)]]
    lines += [[title, *(say(o) for o in outcomes)] for title, say in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def signed(figure: float, digits: int) -> str:
    """Return a difference with its sign; what rounds to nothing is no ``-0.0``."""
    return f"{round(figure, digits) + 0:+.{digits}f}"


def ranged(differences: Mapping[str, Range]) -> list[str]:
    """Return by policy how far it differs where people think for half or twice as long."""
    lines: list[str] = []
    for policy, found in differences.items():
        lines.append(f"{policy} against the first, where people think half to twice as long:")
        for figure, title, digits in _RANGED:
            least, most = found[figure]["least"], found[figure]["most"]
            said = "unknown"
            if least is not None and most is not None:
                said = " to ".join(signed(each, digits) for each in (least, most))
            lines.append(f"  {title}: {said}")
    return [*lines, ""] if lines else []


def _refused(outcomes: Sequence[Outcome]) -> list[_Row]:
    """Return how many were refused at the door, with each reason and its words below."""
    reasons = sorted({reason for o in outcomes for reason in o.refused})
    if not reasons:
        return []

    def row(reason: str) -> _Row:
        words, _ = REFUSALS.get(reason, ("", ""))
        title = f"    {reason}: {words.rstrip('.')}" if words else f"    {reason}"
        return title, lambda o: str(o.refused.get(reason, 0))

    return [("  refused", lambda o: str(sum(o.refused.values()))), *map(row, reasons)]


def _project(name: str) -> list[_Row]:
    def of(outcome: Outcome) -> tuple[str, str, str]:
        found = next((each for each in outcome.projects if each.project == name), None)
        if found is None:
            return "-", "-", "-"
        saturation = "-" if found.saturation is None else f"{found.saturation:.2f}"
        return f"{found.held_hours:.1f}", _waits(found.waits), saturation

    title = name or "(no project)"
    return [
        (f"{title}: GPU-hours held", lambda o: of(o)[0]),
        ("  waits p50, p95", lambda o: of(o)[1]),
        ("  held of its fair share", lambda o: of(o)[2]),
    ]


def _share(part: float, whole: float) -> str:
    return f" ({part / whole:.0%})" if whole else ""


def _within(expected: Expected) -> str:
    return f"{expected.within / expected.told:.0%} of {expected.told}" if expected.told else "-"


def _waits(waits: Waits) -> str:
    return f"{duration(waits.p50)}, {duration(waits.p95)}" if waits.asked else "-"


def duration(seconds: float | None) -> str:
    """Return a wait in words; ``None`` is one whose end was never seen."""
    if seconds is None:
        return "open"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
