"""Instants as the person in front of this kernel reads them: by this machine's clock.

Owns the one form of a time of day in everything a notebook shows.  Pure text, no waiting.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

#: How the service's sentences write an instant; it lies less than half a day away.
_SAID = re.compile(r"\b(\d\d):(\d\d):(\d\d) UTC\b")


def clock(at: datetime | str, *, seconds: bool = True) -> str:
    """Return ``14:05:09`` in this machine's zone, with `` UTC`` where that is its zone.

    Raises:
        ValueError: ``at`` is a text that is no ISO instant.
    """
    instant = datetime.fromisoformat(at) if isinstance(at, str) else at
    local = instant.astimezone()
    zone = " UTC" if local.tzname() == "UTC" else ""
    return f"{local:%H:%M:%S}{zone}" if seconds else f"{local:%H:%M}{zone}"


def own_times(text: str, now: datetime | None = None) -> str:
    """Return a text of the service's with its instants as this machine's clock shows them."""
    near = now or datetime.now(UTC)

    def replace(match: re.Match[str]) -> str:
        hour, minute, second = (int(part) for part in match.groups())
        try:
            at = near.astimezone(UTC).replace(hour=hour, minute=minute, second=second)
        except ValueError:  # 25:00:00 is no time, whoever wrote it
            return match[0]
        # Midnight may lie between: the zone's offset is that of the nearer day.
        if at - near > timedelta(hours=12):
            at -= timedelta(days=1)
        elif near - at > timedelta(hours=12):
            at += timedelta(days=1)
        return clock(at)

    return _SAID.sub(replace, text)
