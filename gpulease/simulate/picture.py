"""Outcomes of replays as an SVG picture: GPUs held and used, and requests waiting, over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from xml.sax.saxutils import escape

from gpulease.simulate.outcome import Outcome
from gpulease.simulate.table import duration

_WIDTH, _HEIGHT, _LEFT, _TOP = 960, 150, 60, 34
_GAP = 62
#: Told apart without colours as well: held is light, used is dark, waiting is a line.
_HELD, _USED, _WAITING = "#9ecae1", "#08519c", "#d94801"


def drawn(outcomes: Sequence[Outcome], begin: datetime) -> str:
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


def _one(outcome: Outcome, begin: datetime, top: float, most: float) -> list[str]:
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
