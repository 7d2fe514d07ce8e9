"""Short ways to write reservations and their windows."""

from dataclasses import replace
from datetime import datetime, timedelta

from gpulease.policy.calendar.occurrences import Calendar, Occurrence
from gpulease.policy.calendar.reservation import Reservation, ReservationTerms, windows_of
from tests.policy.build import NOW, at

TERMS = ReservationTerms()
BERLIN = "Europe/Berlin"


def reservation(name="lab", start=3600.0, length=7200.0, *, weeks=1, **changed):
    """A reservation of 3 cards for cs101: its window begins ``start`` seconds after NOW."""
    first = at(start)
    wall = first.replace(tzinfo=None)
    base = Reservation(
        id=name,
        name=name,
        group="cs101",
        gpu_class="t4",
        seats=3,
        calendar=Calendar(wall, wall + timedelta(seconds=length), "UTC"),
        owner="prof",
        created=NOW,
        occurrences=tuple(
            Occurrence(
                wall + timedelta(weeks=n),
                first + timedelta(weeks=n),
                first + timedelta(weeks=n, seconds=length),
            )
            for n in range(weeks)
        ),
    )
    return replace(base, **changed)


def window(name="lab", start=3600.0, length=7200.0, **changed):
    (found,) = windows_of(reservation(name, start, length, **changed), TERMS, "cards")
    return found


def wall(text):
    return datetime.fromisoformat(text)
