"""Outcomes of replays for people: a table with a column for each policy, and an SVG picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from xml.sax.saxutils import escape

from gpulease.policy.explanation.catalogue import REFUSALS
from gpulease.simulate.outcome import Expected, ReplayOutcome, Waits

#: By figure, the least and the most by which a policy differs from another.
Range = Mapping[str, Mapping[str, float | None]]
_Row = tuple[str, Callable[[ReplayOutcome], str]]
#: The figures whose range is told, with their titles and decimals.
_RANGED = (
    ("held_hours", "GPU-hours held", 1),
    ("p50", "seconds that half of the waits stay below", 0),
    ("p95", "seconds that 19 of 20 waits stay below", 0),
    ("reclaims", "reclaims", 0),
    ("false_reclaims", "false reclaims", 0),
    ("reattaches", "asked again in a session", 0),
)


def table(outcomes: Sequence[ReplayOutcome]) -> str:
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


def _refused(outcomes: Sequence[ReplayOutcome]) -> list[_Row]:
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
    def of(outcome: ReplayOutcome) -> tuple[str, str, str]:
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


_WIDTH, _HEIGHT, _LEFT, _TOP = 960, 150, 60, 34
_GAP = 62
#: Told apart without colours as well: held is light, used is dark, waiting is a line.
_HELD, _USED, _WAITING = "#9ecae1", "#08519c", "#d94801"


def drawn(outcomes: Sequence[ReplayOutcome], begin: datetime) -> str:
    """Return the picture of outcomes of one trace, one below the other at one scale."""
    most = max((max(bin_) for each in outcomes for bin_ in each.bins), default=1.0)
    most = max([most, *(float(each.gpus) for each in outcomes)])
    height = len(outcomes) * (_HEIGHT + _GAP) + _TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}"'
        ' font-family="sans-serif" font-size="12" role="img">',
        "<title>GPUs held, used and waited for</title>",
        f'<rect width="100%" height="{height}" fill="white"/>',
        *_legend(),
    ]
    for number, each in enumerate(outcomes):
        parts += _one(each, begin, _TOP + number * (_HEIGHT + _GAP), most)
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    entries = (("held", _HELD), ("used", _USED), ("requests waiting", _WAITING))
    return [
        f'<rect x="{_LEFT + 130 * at}" y="8" width="12" height="12" fill="{colour}"/>'
        f'<text x="{_LEFT + 130 * at + 18}" y="18">{name}</text>'
        for at, (name, colour) in enumerate(entries)
    ]


def _one(outcome: ReplayOutcome, begin: datetime, top: float, most: float) -> list[str]:
    base = top + 18 + _HEIGHT

    def points(index: int) -> list[tuple[float, float]]:
        width = _WIDTH / len(outcome.bins)
        return [
            (_LEFT + (at + 0.5) * width, base - bin_[index] / most * _HEIGHT)
            for at, bin_ in enumerate(outcome.bins)
        ]

    level = base - outcome.gpus / most * _HEIGHT
    said = (
        f"{outcome.name or 'policy'}: {outcome.held_hours:.0f} GPU-hours held,"
        f" {outcome.busy_hours:.0f} used, waits p50 {duration(outcome.waits.p50)},"
        f" p95 {duration(outcome.waits.p95)}"
    )
    days = outcome.seconds / 86400
    step = max(1, round(days / 8))
    marks = [
        f'<text x="{_LEFT + day / days * _WIDTH:.1f}" y="{base + 16}" text-anchor="middle">'
        f"{begin + timedelta(days=day):%a %d %b}</text>"
        for day in range(0, int(days) + 1, step)
    ]
    return [
        f'<text x="{_LEFT}" y="{top + 12}" font-weight="bold">{escape(said)}</text>',
        _area(points(0), base, _HELD),
        _area(points(1), base, _USED),
        f'<polyline points="{_joined(points(2))}" fill="none" stroke="{_WAITING}"/>',
        f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{level:.1f}" y2="{level:.1f}"'
        ' stroke="black" stroke-dasharray="4 3"/>',
        f'<text x="{_LEFT - 6}" y="{level + 4:.1f}" text-anchor="end">{outcome.gpus} GPUs</text>',
        f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{base}" y2="{base}" stroke="black"/>',
        *marks,
    ]


def _area(points: Sequence[tuple[float, float]], base: float, colour: str) -> str:
    closed = [(points[0][0], base), *points, (points[-1][0], base)]
    return f'<polygon points="{_joined(closed)}" fill="{colour}"/>'


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
