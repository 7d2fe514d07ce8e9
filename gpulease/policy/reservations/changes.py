"""What somebody's change made of a reservation, in words for those who are told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from gpulease.policy.calendar import Expanded, Occurrence, wall_clock, zone_of
from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.units import say_moment

#: So many windows are named; of more it is said how many there are.
_NAMED = 5
#: Members that are told of by name alone: who is told need not read who else stands there.
_OTHERS = {
    "title": "its title",
    "named": "who may come",
    "managers": "who may change it",
    "extra_time": "who has extra time",
    "seats_per_person": "how many seats one person may have",
    "idle": "its idle time-out",
    "lead": "how long before it GPUs are kept free",
    "grace": "when seats that nobody took are lent",
    "contact": "who gets mail of it",
}


def changes_of(before: Reservation, after: Reservation, now: datetime) -> str:
    """Return what is other now, "" where it is the same for everybody."""
    found = []
    if after.seats != before.seats:
        found.append(f"{after.seats} seats, not {before.seats}")
    if after.gpu_class != before.gpu_class:
        found.append(f"GPUs of {after.gpu_class}, not {before.gpu_class}")
    if after.exam != before.exam:
        found.append("it is an exam" if after.exam else "it is no exam")
    found += _windows(before, after, now)
    found += [
        said for name, said in _OTHERS.items() if getattr(before, name) != getattr(after, name)
    ]
    return "; ".join(found)


def _windows(before: Reservation, after: Reservation, now: datetime) -> list[str]:
    zone = zone_of(after.calendar.zone)
    was = {each.original: each for each in before.occurrences if each.end > now}
    will = {each.original: each for each in after.occurrences}
    gone = [at for at in was if at not in will]
    new = [at for at, each in will.items() if at not in was and each.end > now]
    if len(gone) == len(new) == 1:  # it is the same one at another time
        was[new[0]] = was.pop(gone[0])
    found = [f"no session {_when(each, zone)}" for at, each in was.items() if at not in will]
    for at, each in will.items():
        if at in was and (was[at].start, was[at].end) != (each.start, each.end):
            over = each.end <= now and was[at].start == each.start
            verb = "has ended, it was" if over else "is"
            other = was[at] if over else each
            moved = "" if over else f", it was {_when(was[at], zone)}"
            found.append(f"the session of {at:%a %d %b} {verb} {_when(other, zone)}{moved}")
        elif at not in was and each.end > now:
            found.append(f"a session {_when(each, zone)}")
    if len(found) > _NAMED:
        found = [*found[:_NAMED], f"{len(found) - _NAMED} more sessions"]
    if found and after.calendar.zone:
        found[-1] += f" ({after.calendar.zone})"
    return found


def _when(window: Occurrence, zone: ZoneInfo) -> str:
    start, end = wall_clock(window.start, zone), wall_clock(window.end, zone)
    until = f"{end:%H:%M}" if end.date() == start.date() else say_moment(end)
    return f"{say_moment(start)} to {until}"


_MOST_SAID = 5
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
    parts = [f"no session on {at:%a %d %b %Y %H:%M} ({why})" for at, why in gone]
    parts += [f"again one on {at:%a %d %b %Y %H:%M}" for at in back]
    parts += [
        f"the one of {each.original:%a %d %b %Y %H:%M} begins at {each.start:%H:%M} UTC, for the"
        " rules of its time zone changed"
        for each in other
    ]
    more = f"; and {len(parts) - _MOST_SAID} more" if len(parts) > _MOST_SAID else ""
    return f"{after.name} of {after.group} has {'; '.join(parts[:_MOST_SAID])}{more}."
