"""Sizes, durations and days as people write and read them: ``24GiB``, ``1h30m``, ``Tue 03 Mar``.

``ValueError`` carries a sentence that may be shown.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache

from gpulease.texts import Text, counted


def size_text(size: float) -> str:
    """Return ``236 B``, ``4.0 kB`` ...: of values and files, decimal as in JupyterLab's panel."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000 or unit == "GB":
            return f"{size:.1f} {unit}"
    raise AssertionError("unreachable")


def memory_text(used: float, whole: float) -> str:
    """Return ``3.0 of 80 GB`` of a GPU's memory: vendors call 80 GiB so, and so do all pages.

    The same stands in the service's pages (``words.js``) and JupyterLab (``words.ts``).
    """
    gib = used / 2**30
    return f"{gib:.{int(gib < 10)}f} of {whole / 2**30:.0f} GB"


_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_BYTES = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_BYTES |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)([dhms]))(?=\d|$)")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B)?")


def parse_duration(text: str | float) -> float:
    """Return seconds; a bare number is seconds already."""
    if isinstance(text, bool):
        raise ValueError(Text("{text} is not a duration.", text=str(text)))  # noqa: TRY004 - one error for all of it
    if isinstance(text, (int, float)):
        return _not_negative(_float(text), text)
    compact = text.strip().replace(" ", "")
    parts = _DURATION.findall(compact)
    if parts and "".join(number + unit for number, unit in parts) == compact:
        return _not_negative(sum(float(n) * _SECONDS[unit] for n, unit in parts), text)
    if _NUMBER.fullmatch(compact):
        return _not_negative(float(compact), text)
    raise ValueError(
        Text("'{text}' is not a duration; write for example 90s, 5m or 8h.", text=text)
    )


def format_duration(seconds: float) -> str:
    """Return an exact writing: 300 -> ``5m``, 5400 -> ``1h30m``, 172800 -> ``2d``."""
    if seconds != int(seconds) or seconds == 0:
        return f"{Decimal(repr(seconds)).normalize():f}s"
    if days := _whole_days(seconds):
        return f"{days}d"
    rest, parts = int(seconds), []
    for unit in "hms":
        size = int(_SECONDS[unit])
        if rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return "".join(parts)


@lru_cache(maxsize=1024)
def say_duration(seconds: float) -> str:
    """Return a duration as a sentence says it: ``45 s``, ``1 h 30 min``, ``180 days``."""
    if math.isinf(seconds):
        return Text("no limit")
    if days := _whole_days(seconds):
        return counted("{n} day", "{n} days", days)
    words = {"h": "h", "m": "min", "s": "s"}
    parts = _DURATION.findall(format_duration(seconds))
    return " ".join(f"{number} {words[unit]}" for number, unit in parts)


def _whole_days(seconds: float) -> int:
    """Return how many days something takes that takes at least two and no part of one, else 0."""
    days, rest = divmod(seconds, _SECONDS["d"])
    return int(days) if days > 1 and not rest else 0


_WEEKDAYS = (
    Text("Mon"), Text("Tue"), Text("Wed"), Text("Thu"), Text("Fri"), Text("Sat"), Text("Sun"),
)  # fmt: skip
_MONTHS = (
    Text("Jan"), Text("Feb"), Text("Mar"), Text("Apr"), Text("May"), Text("Jun"),
    Text("Jul"), Text("Aug"), Text("Sep"), Text("Oct"), Text("Nov"), Text("Dec"),
)  # fmt: skip


def say_day(at: datetime) -> Text:
    """Return a day as a sentence says it: ``Tue 03 Mar 2026``."""
    return Text(
        "{weekday} {day} {month} {year}",
        weekday=_WEEKDAYS[at.weekday()],
        day=f"{at.day:02}",
        month=_MONTHS[at.month - 1],
        year=at.year,
    )


def at_midnight(day: date) -> datetime:
    """Return the beginning of a day, on no clock in particular."""
    return datetime.combine(day, time())


def say_moment(at: datetime) -> Text:
    """Return day and wall clock as a sentence says them: ``Tue 03 Mar 2026 14:00``."""
    return Text("{day} {time}", day=say_day(at), time=f"{at:%H:%M}")


def say_count(number: int, one: str, many: str) -> str:
    """Return a number with what it counts: ``1 request waits``, ``3 requests wait``."""
    return f"{number} {one if number == 1 else many}"


def parse_size(text: str | float) -> int:
    """Return bytes; a bare number is bytes already."""
    if isinstance(text, bool):
        raise ValueError(Text("{text} is not a size.", text=str(text)))  # noqa: TRY004 - one error for all of it
    if isinstance(text, (int, float)):
        return int(_not_negative(_float(text), text))
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(Text("'{text}' is not a size; write for example 24GiB.", text=text))
    return int(_not_negative(float(match[1]) * _BYTES[match[2] or ""], text))


def format_size(size: int) -> str:
    """Return the shortest exact writing: 25769803776 -> ``24GiB``."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return str(size)


def _float(number: float) -> float:
    """Return a number that stands for itself, a whole one without end as what it nears."""
    try:
        return float(number)
    except OverflowError:
        return float("inf")


def _not_negative(value: float, text: object) -> float:
    if not 0 <= value < float("inf"):
        raise ValueError(Text("{text} is below zero or not a number.", text=str(text)))
    return value
