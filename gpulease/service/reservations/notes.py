"""What a person who reserves should look at again: it may not be meant, and is no refusal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpulease.policy.calendar import Expanded, wall_clock, zone_of
from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.units import say_moment
from gpulease.texts import Text


def notes_of(
    reservation: Reservation, expanded: Expanded, roster: Sequence[str] | None
) -> Iterator[str]:
    """Yield what may not be meant.

    Args:
        reservation: as it is or would be.
        expanded: what its calendar gave.
        roster: the group's members, ``None`` where they are not known.
    """
    for at in expanded.missed:
        yield Text("Nothing is planned at {at}.", at=say_moment(at))
    yield from _skipped_by_clocks(reservation)
    if roster is None:
        return
    group = reservation.group
    if not roster and not reservation.named:
        yield Text("Nobody is in the group {group} at present.", group=group)
    known = {*roster, *reservation.named} if reservation.named else set(roster)
    longer = [person for person, _ in reservation.extra_time if person not in known]
    strangers = [person for person in reservation.named if person not in roster]
    for person in dict.fromkeys([*strangers, *longer]):
        yield Text("{person} is not in the group {group}.", person=person, group=group)


def _skipped_by_clocks(reservation: Reservation) -> Iterator[str]:
    zone = zone_of(reservation.calendar.zone)
    changed = {each.original for each in reservation.calendar.changed}
    for each in reservation.occurrences:
        shown = wall_clock(each.start, zone)
        if each.original not in changed and shown != each.original:
            yield Text(
                "The clocks skip {at}: that window begins at {time}.",
                at=say_moment(each.original),
                time=f"{shown:%H:%M}",
            )
