"""What becomes of a booked reservation when closures, or the rules of its time zone, change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from gpulease.policy.calendar import Expanded, Occurrence
from gpulease.policy.calendar.reservation import Reservation

_NAMED = 5
_TAKEN = "others have reserved it since"


def expanded_anew(
    before: Reservation, found: Expanded, now: datetime, fits: Callable[[Occurrence], bool]
) -> Reservation:
    """Return a reservation with its windows as they come out now, itself where nothing changes.

    A window that has begun stays as it was.  One that a closure left out comes back only if it
    ``fits`` beside what was reserved meanwhile.  None is added after the last one that was reserved
    or left out.
    """
    there = {each.original for each in before.occurrences}
    last = max([*there, *(at for at, _ in before.closed)], default=before.calendar.start)
    begun = [each for each in before.occurrences if each.start <= now]
    ahead = [
        o for o in found.occurrences if o.start > now and o not in begun and o.original <= last
    ]
    taken = [each for each in ahead if each.original not in there and not fits(each)]
    occurrences = (*begun, *(each for each in ahead if each not in taken))
    skipped = (each for each in found.skipped if each[0] <= last)
    closed = tuple(sorted([*skipped, *((each.original, _TAKEN) for each in taken)]))
    if (occurrences, closed) == (before.occurrences, before.closed):
        return before
    return replace(before, occurrences=occurrences, closed=closed, version=before.version + 1)


def what_changed(before: Reservation, after: Reservation) -> str:
    """Return in a sentence which windows went, came back, or begin at another moment."""
    was = {each.original: each for each in before.occurrences}
    gone = [each for each in after.closed if each not in before.closed]
    back = [each.original for each in after.occurrences if each.original not in was]
    other = [o for o in after.occurrences if o.original in was and was[o.original] != o]
    parts = [f"no window on {at:%a %d %b %Y %H:%M} ({why})" for at, why in gone]
    parts += [f"again one on {at:%a %d %b %Y %H:%M}" for at in back]
    parts += [
        f"the one of {each.original:%a %d %b %Y %H:%M} begins at {each.start:%H:%M} UTC, for the"
        " rules of its time zone changed"
        for each in other
    ]
    more = f"; and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return f"{after.name} of {after.group} has {'; '.join(parts[:_NAMED])}{more}."
