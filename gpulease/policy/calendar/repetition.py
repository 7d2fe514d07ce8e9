"""How a window repeats: an RFC 5545 rule, of the kinds that a timetable has.

dateutil expands the rules.  It looks for the next date without a bound of its own
(``FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30`` finds none before the year 9999), so a rule that a person
wrote is expanded in a process that can be ended: ``service.reservations.expansion``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.local_time import wall_clock

if TYPE_CHECKING:
    from dateutil.rrule import rrule

#: A repetition is cut to so many months from the present, or from a later start ...
MAX_MONTHS: Final = 18
#: ... and to so many dates that are to come.
MAX_OCCURRENCES: Final = 400
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY")
_DAY = r"[+-]?[1-5]?(?:MO|TU|WE|TH|FR|SA|SU)"
_PARTS: Final = {
    "FREQ": "|".join(_FREQUENCIES),
    "INTERVAL": r"[1-9]\d{0,2}",
    "COUNT": r"[1-9]\d{0,3}",
    "UNTIL": r"\d{8}(?:T\d{6}Z?)?",
    "BYDAY": rf"{_DAY}(?:,{_DAY}){{0,20}}",
    "BYMONTHDAY": r"-?[1-9]\d?(?:,-?[1-9]\d?){0,30}",
    "BYMONTH": r"[1-9]\d?(?:,[1-9]\d?){0,11}",
    "BYSETPOS": r"-?[1-9]\d?(?:,-?[1-9]\d?){0,30}",
    "WKST": "MO|TU|WE|TH|FR|SA|SU",
}


def repetition(text: str) -> str:
    """Return a rule as it is kept: upper case, ``FREQ`` first, ``""`` for none.

    Raises:
        GPULeaseError: ``bad_calendar`` (422) with the part that cannot be used.
    """
    plain = text.strip().upper().removeprefix("RRULE:").strip(";")
    if not plain:
        return ""
    parts: dict[str, str] = {}
    for part in plain.split(";"):
        name, _, value = (word.strip() for word in part.partition("="))
        pattern = _PARTS.get(name)
        if pattern is None or name in parts or not re.fullmatch(pattern, value):
            raise _bad_rule(part.strip())
        parts[name] = value
    if "FREQ" not in parts:
        raise _bad_rule(plain)
    if "COUNT" in parts and "UNTIL" in parts:
        raise _bad_rule("COUNT and UNTIL together")
    if re.search(r"\d", parts.get("BYDAY", "")) and parts["FREQ"] != "MONTHLY":
        raise _bad_rule(f"BYDAY={parts['BYDAY']}")  # the first Monday of what?
    if "BYSETPOS" in parts and not {"BYDAY", "BYMONTHDAY", "BYMONTH"} & parts.keys():
        raise _bad_rule(f"BYSETPOS={parts['BYSETPOS']}")
    return ";".join(f"{name}={parts[name]}" for name in _PARTS if name in parts)


def dates(
    start: datetime,
    rule: str,
    zone: ZoneInfo,
    *,
    since: datetime = datetime.min,
    now: datetime = datetime.min,
) -> tuple[list[datetime], bool]:
    """Return the wall clock times that a kept rule names from ``since`` on, and whether it was cut.

    It reaches ``MAX_MONTHS`` from ``now``, or from ``start`` where that is later.  May look for
    years where a rule names no date: see the module.

    Raises:
        GPULeaseError: ``bad_calendar`` (422): the rule cannot be read or names no date.
    """
    if not rule:
        return [start], False
    from dateutil.relativedelta import relativedelta

    limit = max(start, now) + relativedelta(months=MAX_MONTHS)
    read, until = _read(rule, start), _until(rule, zone)
    last = limit if until is None else min(until, limit)
    within = takewhile(lambda at: at <= last, read)
    _refuse_other_start(start, next(within, None), rule)
    every, ahead = [], 0
    for at in chain([start], within):
        ahead += at >= now
        if ahead > MAX_OCCURRENCES:
            break
        every.append(at)
    cut = ahead > MAX_OCCURRENCES or (until is not None and until > limit)
    cut = cut or (until is None and _counts_beyond(rule, len(every)))
    return [at for at in every if at >= since], cut


def _refuse_other_start(start: datetime, first: datetime | None, rule: str) -> None:
    if first is None:
        raise _bad_rule(rule)
    if first != start:
        raise GPULeaseError(
            "bad_calendar",
            f"The first date, {start:%a %d %b %Y}, is none that the repetition names.",
            next_step=f"Begin on {first:%a %d %b %Y}, or change the repetition.",
            numbers={"first": first.isoformat(timespec="minutes")},
            status=422,
        )


def _counts_beyond(rule: str, found: int) -> bool:
    match = re.search(r"COUNT=(\d+)", rule)
    return match is None or int(match[1]) > found


def _read(rule: str, start: datetime) -> rrule:
    from dateutil.rrule import rrule, rrulestr  # node agents, which expand nothing, have none

    plain = ";".join(part for part in rule.split(";") if not part.startswith("UNTIL="))
    try:
        found = rrulestr(plain, dtstart=start)
    except (ValueError, TypeError):
        raise _bad_rule(rule) from None
    assert isinstance(found, rrule), "one rule is no set of rules"
    return found


def _until(rule: str, zone: ZoneInfo) -> datetime | None:
    """Return the last moment on the wall clock; a date means the whole day."""
    match = re.search(r"UNTIL=(\w+)", rule)
    if match is None:
        return None
    text = match[1]
    try:
        if "T" not in text:
            return datetime.combine(datetime.strptime(text, "%Y%m%d").date(), time.max)
        read = datetime.strptime(text.removesuffix("Z"), "%Y%m%dT%H%M%S")
    except ValueError:
        raise _bad_rule(f"UNTIL={text}") from None
    return wall_clock(read.replace(tzinfo=UTC), zone) if text.endswith("Z") else read


def _bad_rule(part: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_calendar",
        f"The repetition {part!r} cannot be used here.",
        next_step="Write one such as FREQ=WEEKLY;BYDAY=MO,WE;COUNT=12: daily, weekly or monthly, "
        "with INTERVAL, COUNT or UNTIL, BYDAY, BYMONTHDAY, BYMONTH or BYSETPOS.",
        numbers={"part": part[:100]},
        status=422,
    )
