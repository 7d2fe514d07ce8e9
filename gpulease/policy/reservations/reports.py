"""Messages to people about reservations: changes, labs that will be short of seats, who came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from gpulease.policy.calendar.occurrences import Expanded, Occurrence, wall_clock, zone_of
from gpulease.policy.calendar.reservation import Reservation, Window
from gpulease.policy.model import Lease, PolicyDocument
from gpulease.policy.reservations.booking import windows
from gpulease.policy.reservations.feasibility import Offer, Pool, offer_for, seats_fit, steps_of
from gpulease.sizes import say_moment
from gpulease.system.terminal import csv_text
from gpulease.texts import Text, counted

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


@dataclass(frozen=True)
class Shortage:
    """A window with fewer seats than it needs.

    ``people``: who may claim a seat, where they are more than its seats and that is what it lacks;
    0 where seats are missing that were reserved.
    """

    window: Window
    seats: int
    people: int
    offer: Offer

    @property
    def sentence(self) -> str:
        """What is short, and when."""
        of = self.window.of
        lab = {"name": of.name, "group": of.group}
        if self.people:
            return counted(
                "{name} of {group} has {n} seat for {people} people.",
                "{name} of {group} has {n} seats for {people} people.",
                self.seats,
                people=self.people,
                **lab,
            )
        return Text(
            "{name} of {group} on {start} has {seats} of {all} x {gpu_class}: GPUs are out of"
            " service.",
            start=say_moment(wall_clock(self.window.start, zone_of(of.calendar.zone))),
            seats=self.seats,
            all=of.seats,
            gpu_class=of.gpu_class,
            **lab,
        )

    @property
    def next_step(self) -> str:
        """What the instructor can do."""
        needed = self.people or self.window.of.seats
        if self.people and self.offer.seats >= needed:  # nobody has to come at another time
            return seats_fit(needed)
        if self.people and self.offer.seats > self.seats:
            return steps_of(self.offer, needed)
        # How many seats there are then is said already.
        nothing = Text("Seats go to those who come first.")
        return steps_of(replace(self.offer, seats=0), needed, nothing)

    def to_json(self) -> dict[str, Any]:
        """Return what is said and its numbers as JSON values."""
        return {
            "sentence": self.sentence,
            "next_step": self.next_step,
            "start": self.window.start.isoformat(),
            "seats": self.seats,
            "people": self.people,
            "offer": self.offer.to_json(),
        }


def shortage(
    window: Window,
    seats: int,
    people: int,
    others: Iterable[Reservation],
    *,
    policy: PolicyDocument,
    pools: Mapping[str, Pool],
    now: datetime,
) -> Shortage | None:
    """Return what a window lacks, ``None`` where there is a seat for everybody.

    Args:
        window: of a reservation that is booked, or can be.
        seats: what is there of its seats.
        people: who may claim one, 0 where that is not known.
        others: every reservation; the window's own is left out.
        policy: the document in force.
        pools: the firm capacity of each pool.
        now: the present.
    """
    lost = seats < window.of.seats
    if not lost and people <= seats:
        return None
    needed = replace(window.of, seats=window.of.seats if lost else people)
    booked = [w for other in others if other.id != needed.id for w in windows(policy, other)]
    offer = offer_for(
        needed, [replace(window, of=needed)], booked, policy=policy, pools=pools, now=now
    )
    return Shortage(window, seats, 0 if lost else people, offer)


STEP = Text("Change its class, or cancel it.")


def without_class(
    reservations: Iterable[Reservation], policy: PolicyDocument, now: datetime
) -> Iterator[Reservation]:
    """Yield those that have windows ahead, and no class in the policy."""
    for each in reservations:
        if not each.cancelled and each.gpu_class not in policy.by_name and each.over > now:
            yield each


def sentence_of(reservation: Reservation) -> Text:
    """Say that nobody has a seat of it."""
    return Text(
        "{name} of {group} has no GPUs: class '{gpu_class}' is not offered.",
        name=reservation.name,
        group=reservation.group,
        gpu_class=reservation.gpu_class,
    )


COLUMNS = ("window", "user", "came", "left", "leases", "held_seconds", "busy_seconds")


@dataclass(frozen=True)
class Attendance:
    """One person in one window; the times are ``None`` for a named person who did not come.

    ``busy``: seconds of the window in which the GPU worked, estimated by the leases' busy shares.
    """

    window: Window
    user: str
    came: datetime | None = None
    left: datetime | None = None
    leases: int = 0
    held: float = 0.0
    busy: float = 0.0


def attendance(
    windows: Iterable[Window], leases: Sequence[Lease], busy: Mapping[str, float], now: datetime
) -> list[Attendance]:
    """Return the rows of all windows that have begun, by window and person.

    Args:
        windows: of one reservation.
        leases: of its people, also ended ones.
        busy: the busy share, 0 to 1, of each lease.
        now: the present: what has not ended counts until then.
    """
    found = []
    for window in sorted(windows, key=lambda each: each.order):
        if window.start > now:
            break
        people = {user: Attendance(window, user) for user in window.of.named}
        for lease in sorted(leases, key=lambda each: (each.created, each.id)):
            if lease.gpu_class == window.of.gpu_class and window.entitles(lease.user, lease.groups):
                row = people.get(lease.user, Attendance(window, lease.user))
                people[lease.user] = _with(row, lease, busy.get(lease.id, 0.0), now)
        rows = (row for row in people.values() if row.leases or row.user in window.of.named)
        found += sorted(rows, key=lambda row: row.user)
    return found


def _with(row: Attendance, lease: Lease, busy: float, now: datetime) -> Attendance:
    """Add what a lease was in the window; one that was not there then adds nothing."""
    if lease.active_since is None:
        return row
    came = max(lease.active_since, row.window.start)
    left = min(lease.ended or now, row.window.end_for(lease.user))
    if left <= came:
        return row
    held = (left - came).total_seconds() * lease.count
    return replace(
        row,
        came=min(came, row.came or came),
        left=max(left, row.left or left),
        leases=row.leases + 1,
        held=row.held + held,
        busy=row.busy + held * busy,
    )


def as_csv(rows: Iterable[Attendance]) -> str:
    """Return the rows as CSV, with times as the wall shows them."""
    return csv_text(COLUMNS, map(_cells, rows))


def _cells(row: Attendance) -> list[object]:
    zone = zone_of(row.window.of.calendar.zone)
    start, came, left = (
        wall_clock(at, zone).isoformat(timespec="minutes") if at is not None else ""
        for at in (row.window.start, row.came, row.left)
    )
    return [start, row.user, came, left, row.leases, round(row.held), round(row.busy)]
