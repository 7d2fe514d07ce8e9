"""Instants as the person in front of this kernel reads them: in their zone, by their clock.

A front end says which these are; until then, and without one, they are this machine's.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

#: How the service's sentences hold an instant (``texts.instant``).
_SAID = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass
class _Reader:
    zone: ZoneInfo | None = None
    twelve_hours: bool = False


_READER = _Reader()


def read_in(zone: str, *, twelve_hours: bool) -> None:
    """Write instants from now on as the person's browser does; an unknown zone changes none.

    Args:
        zone: name in the IANA database, as ``Europe/Berlin``.
        twelve_hours: whether their clock reads 7:19 PM.
    """
    with suppress(ValueError, OSError, KeyError):
        _READER.zone = ZoneInfo(zone)
    _READER.twelve_hours = twelve_hours


def clock(at: datetime | str, *, seconds: bool = True) -> str:
    """Return ``14:05:09`` or ``2:05:09 PM``; with `` UTC`` where only this machine's zone is known
    and is that.

    Raises:
        ValueError: ``at`` is a text that is no ISO instant.
    """
    instant = datetime.fromisoformat(at) if isinstance(at, str) else at
    local = instant.astimezone(_READER.zone)
    told = "%I:%M:%S %p" if _READER.twelve_hours else "%H:%M:%S"
    text = local.strftime(told if seconds else told.replace(":%S", ""))
    if _READER.twelve_hours:
        text = text.removeprefix("0")
    return f"{text} UTC" if _READER.zone is None and local.tzname() == "UTC" else text


def own_times(text: str) -> str:
    """Return a text of the service's with its instants as this reader's clock shows them."""

    def replace(match: re.Match[str]) -> str:
        try:
            return clock(match[0])
        except ValueError:  # the 30th of February is no day, whoever wrote it
            return match[0]

    return _SAID.sub(replace, text)
