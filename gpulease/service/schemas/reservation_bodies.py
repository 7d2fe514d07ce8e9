"""What is sent about reservations, and the reservation that it means.

Times are written as people read them off a wall: ``2026-03-02T14:00``, with the zone beside them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.ics_read import MAX_TEXT, Read
from gpulease.policy.calendar.occurrences import (
    Calendar,
    Changed,
    repetition,
    wall_clock,
    wall_text,
    zone_of,
)
from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.document import reservations_file
from gpulease.policy.projects import ADDRESS
from gpulease.service.schemas.bodies import Body
from gpulease.service.schemas.problems import form, problem_of, sentence
from gpulease.sizes import parse_duration
from gpulease.texts import Said, Text

_ONE_LINE = Text("it must be one line")
_Line = Annotated[str, form(r"^[^\r\n\x00]*$", _ONE_LINE, max_length=200)]
_Name = Annotated[str, form(r"^[^\r\n\x00]+$", _ONE_LINE, min_length=1, max_length=100)]
_Person = Annotated[str, Field(min_length=1, max_length=255)]
_Moment = Annotated[str, Field(min_length=4, max_length=32)]
_Address = Annotated[
    str, form(f"^{ADDRESS}$", Text("it must be an e-mail address"), max_length=254)
]

#: Characters of a reservation's name, and those of them that are its request's key.
_LENGTH, OF_KEY = 20, 12


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


_Duration = Annotated[float, Field(ge=0, le=30 * 86400), BeforeValidator(_seconds)]


class WindowBody(Body):
    """A change of one window; ``at`` is when the rule begins it, on the wall clock.

    ``end_now`` ends the one that is open.
    """

    at: _Moment | None = None
    start: _Moment | None = None
    end: _Moment | None = None
    cancelled: bool = False
    end_now: bool = False


class MovedBody(Body):
    """One window that is not as the rule has it; ``at`` is when the rule begins it."""

    at: _Moment
    start: _Moment | None = None
    end: _Moment | None = None
    cancelled: bool = False


class ChangeBody(Body):
    """Change a reservation: ``PATCH reservations/{id}``; what is not named stays."""

    title: Annotated[_Line | None, Said("The title for students; the name if empty.")] = None
    gpu_class: Annotated[
        Annotated[str, Field(min_length=1, max_length=64)] | None, Said("The class.")
    ] = None
    seats: Annotated[
        Annotated[int, Field(ge=1, le=100000)] | None, Said("GPUs of the class that are kept.")
    ] = None
    start: Annotated[
        _Moment | None, Said("When the first session begins, as 2026-10-05T14:00.")
    ] = None
    end: Annotated[
        _Moment | None, Said("When it ends; a time alone is on the same day or the next.")
    ] = None
    zone: Annotated[
        Annotated[str, Field(max_length=64)] | None, Said("IANA time zone of all times.")
    ] = None
    repeat: Annotated[
        Annotated[str, Field(max_length=500)] | None,
        Said("RFC 5545 rule: DAILY, WEEKLY or MONTHLY; at most 18 months, 400 sessions."),
    ] = None
    also: Annotated[
        Annotated[list[_Moment], Field(max_length=400)] | None, Said("Further starts.")
    ] = None
    without: Annotated[
        Annotated[list[_Moment], Field(max_length=400)] | None,
        Said("Starts that are left out; a date alone is the session of that day."),
    ] = None
    seats_per_person: Annotated[
        Annotated[int, Field(ge=1, le=1000)] | None, Said("Seats that one person may claim; 1.")
    ] = None
    named: Annotated[
        Annotated[list[_Person], Field(max_length=2000)] | None,
        Said("Who may claim a seat; empty: every member."),
    ] = None
    managers: Annotated[
        Annotated[list[_Person], Field(max_length=100)] | None,
        Said("Co-managers beside the group's instructors."),
    ] = None
    idle: Annotated[_Duration | None, Said("The sessions' own idle time-out.")] = None
    exam: Annotated[
        bool | None, Said("No idle reclaim, no Keep, nothing is lent, and all leases end with it.")
    ] = None
    extra_time: Annotated[
        Annotated[dict[_Person, _Duration], Field(max_length=2000)] | None,
        Said("Person to time after the end, as {ann: 30m}."),
    ] = None
    lead: Annotated[_Duration | None, Said("How long before a session its GPUs are kept free.")] = (
        None
    )
    grace: Annotated[
        _Duration | None, Said("How long after the start unclaimed seats are lent.")
    ] = None
    contact: Annotated[
        Annotated[list[_Address], Field(max_length=10)] | None,
        Said("E-mail addresses that are notified of changes and losses."),
    ] = None
    changed: Annotated[
        Annotated[list[MovedBody], Field(max_length=400)] | None,
        Said("All sessions that are not as the rule has them, by at."),
    ] = None
    window: Annotated[WindowBody | None, Said("PATCH only: a change of one session.")] = None
    base_version: Annotated[int | None, Said("PATCH only: the version that was changed.")] = None


class ReservationBody(ChangeBody):
    """Reserve GPUs for a group: ``POST reservations``."""

    name: Annotated[_Name, Said("What it is called; one of its kind in the group.")]
    group: Annotated[
        str,
        Field(min_length=1, max_length=255),
        Said("The hub group whose members may claim seats."),
    ]
    gpu_class: Annotated[str, Field(min_length=1, max_length=64), Said("The class.")]
    seats: Annotated[int, Field(ge=1, le=100000), Said("GPUs of the class that are kept.")]
    start: Annotated[_Moment, Said("When the first session begins, as 2026-10-05T14:00.")]
    end: Annotated[_Moment, Said("When it ends; a time alone is on the same day or the next.")]
    zone: Annotated[str, Field(max_length=64), Said("IANA time zone of all times.")]


class CheckBody(Body):
    """Several reservations as they would be made one after the other: ``POST reservations/check``.

    One of a name that the group has already is checked as a change of it.
    """

    reservations: Annotated[list[ReservationBody], Field(min_length=1, max_length=100)]


class ApplyBody(Body):
    """A timetable: ``POST reservations/apply``.  ``cancel`` are ids of what is cancelled first."""

    reservations: Annotated[list[ReservationBody], Field(max_length=100)]
    cancel: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=64)], ...],
        Field(max_length=1000, strict=False),
    ] = ()
    dry_run: bool = True


class CalendarBody(Body):
    """An iCalendar whose events are to be reserved: ``POST reservations.ics``.

    ``group``, ``gpu_class``, ``seats`` and ``zone`` hold where it does not say them.
    """

    calendar: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
    group: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    gpu_class: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    seats: Annotated[int, Field(ge=1, le=100000)] | None = None
    zone: Annotated[str, Field(max_length=64)] = ""
    dry_run: bool = True

    def reservations(self, read: Read) -> list[ReservationBody]:
        """Return what its events are, of what was read of it.

        Raises:
            GPULeaseError: ``bad_calendar`` (422).
        """
        common = self.model_dump(include={"group", "gpu_class", "seats"}, exclude_none=True)
        found = reservations_file.completed(read, common)
        try:
            return [ReservationBody.model_validate(each) for each in found]
        except ValidationError as error:
            first = error.errors()[0]
            member = ".".join(map(str, first["loc"]))
            raise GPULeaseError(
                "bad_calendar",
                Text(
                    "An event cannot be reserved: {problem}",
                    problem=sentence(member, problem_of(first)),
                ),
                next_step=Text("Change the event, or write the reservations as YAML."),
            ) from None


def id_of(who: str, key: str, body: ReservationBody) -> str:
    """Return a new name; the same key of the same person makes the same one of the same body.

    It begins with what the key makes and ends with what the body makes, so that what is made once
    tells for ever which request made it.
    """
    if not key:
        return secrets.token_hex(_LENGTH // 2)
    whose = hashlib.sha256(f"{who}/{key}".encode()).hexdigest()
    what = hashlib.sha256(body.model_dump_json(exclude_defaults=True).encode()).hexdigest()
    return whose[:OF_KEY] + what[: _LENGTH - OF_KEY]


def made(body: ReservationBody, reservation_id: str, owner: str, now: datetime) -> Reservation:
    """Return the new reservation of a body, not expanded.

    Raises:
        GPULeaseError: ``bad_calendar`` (422).
    """
    start = moment(body.start)
    blank = Reservation(
        id=reservation_id,
        name=body.name,
        group=body.group,
        gpu_class=body.gpu_class,
        seats=body.seats,
        calendar=Calendar(start, start + timedelta(minutes=1), body.zone),
        owner=owner,
        created=now,
    )
    return changed(blank, body, now)


def changed(before: Reservation, body: ChangeBody, now: datetime) -> Reservation:
    """Return a reservation with what a body names of it changed, not expanded.

    Raises:
        GPULeaseError: ``bad_calendar`` (422).
    """
    given = body.model_dump(exclude_unset=True)
    plain = {
        name: given[name]
        for name in ("title", "gpu_class", "seats", "seats_per_person", "exam")
        if given.get(name) is not None
    }
    plain |= {name: given[name] for name in ("idle", "lead", "grace") if name in given}
    for name in ("named", "managers", "contact"):
        if given.get(name) is not None:
            plain[name] = tuple(dict.fromkeys(given[name]))
    if given.get("extra_time") is not None:
        plain["extra_time"] = tuple(sorted(given["extra_time"].items()))
    calendar = _calendar(before.calendar, body)
    if body.changed is not None:
        calendar = replace(calendar, changed=tuple(_moved(calendar, each) for each in body.changed))
    if body.window is not None:
        calendar = _window(before, calendar, body.window, now)
    return replace(before, calendar=calendar, **plain)


def _calendar(before: Calendar, body: ChangeBody) -> Calendar:
    start = before.start if body.start is None else moment(body.start)
    length = before.end - before.start
    end = start + length if body.end is None else moment(body.end, start)
    found = replace(
        before,
        start=start,
        end=end,
        zone=before.zone if body.zone is None else body.zone,
        repeat=before.repeat if body.repeat is None else repetition(body.repeat),
    )
    zone_of(found.zone)
    if (found.start, found.repeat, found.zone) != (before.start, before.repeat, before.zone):
        found = _followed(before, found)
    if body.also is not None:
        found = replace(found, also=tuple(moment(each, start) for each in body.also))
    if body.without is not None:
        found = replace(found, without=tuple(moment(each, start) for each in body.without))
    return found


def _followed(before: Calendar, after: Calendar) -> Calendar:
    """Return a calendar whose exceptions go with its dates: a lab that was cancelled stays so when
    its series is prolonged, or moved to another hour or day of the week.
    """
    if not (before.repeat and after.repeat):
        return replace(after, changed=())  # one window, which has just been said anew
    by_day = [re.findall(r"BYDAY=[^;]+", each.repeat) for each in (before, after)]
    days = (after.start.date() - before.start.date()).days
    weekly = "FREQ=WEEKLY" in after.repeat and (by_day[0] != by_day[1] or not by_day[1])
    days = (days + 3) % 7 - 3 if weekly else 0  # it is the same week

    def follow(at: datetime) -> datetime:
        clock = after.start.time() if at.time() == before.start.time() else at.time()
        return datetime.combine(at.date() + timedelta(days=days), clock)

    def with_its_date(one: Changed) -> Changed:
        at = follow(one.original)
        if one.start != one.original or one.end is None:  # cancelled, or at a time of its own
            return one._replace(original=at)
        return Changed(at, at, at + (one.end - one.start))

    return replace(
        after,
        also=tuple(map(follow, before.also)),
        without=tuple(map(follow, before.without)),
        changed=tuple(map(with_its_date, before.changed)),
    )


def _moved(calendar: Calendar, body: MovedBody) -> Changed:
    at = moment(body.at, calendar.start)
    if body.cancelled:
        return Changed(at)
    start = at if body.start is None else moment(body.start, at)
    length = calendar.end - calendar.start
    end = start + length if body.end is None else moment(body.end, start)
    if end <= start:
        raise GPULeaseError("bad_calendar", f"The session of {at:%d %b %Y} ends before it begins.")
    return Changed(at, start, end)


def _window(before: Reservation, calendar: Calendar, body: WindowBody, now: datetime) -> Calendar:
    zone = zone_of(calendar.zone)
    if body.at is not None:
        original = moment(body.at, calendar.start)
        found = next((o for o in before.occurrences if o.original == original), None)
    else:
        found = next((o for o in before.occurrences if o.start <= now < o.end), None)
    if found is None and body.at is None:
        raise GPULeaseError(
            "bad_calendar",
            "None of its sessions is in progress.",
            next_step="Name one in `at` by the time at which the timetable begins it, to change or"
            " cancel it.",
        )
    if found is None:
        raise GPULeaseError(
            "bad_calendar",
            "There is no such session.",
            next_step="Name it in `at` by the time at which the timetable begins it.",
        )
    start, end = wall_clock(found.start, zone), wall_clock(found.end, zone)
    if body.end_now:
        end = wall_clock(now, zone)
    start = start if body.start is None else moment(body.start, start)
    end = end if body.end is None else moment(body.end, start)
    one = Changed(found.original) if body.cancelled else Changed(found.original, start, end)
    if not body.cancelled and end <= start:
        raise GPULeaseError("bad_calendar", "The session would end before it begins.")
    rest = (each for each in calendar.changed if each.original != found.original)
    return replace(calendar, changed=(*rest, one))


def moment(text: str, beside: datetime | None = None) -> datetime:
    """Return a time of the wall clock.

    Beside another, a date alone is at that one's time; a time alone is on its day, or on the next
    one where it would be before it.

    Raises:
        GPULeaseError: ``bad_calendar`` (422).
    """
    plain = text.strip().replace(" ", "T")
    try:
        if beside is not None and "-" not in plain:
            clock = time.fromisoformat(plain)
            at = datetime.combine(beside.date(), clock)
            at = at if at >= beside else at + timedelta(days=1)
        elif beside is not None and len(plain) == len("2026-01-01"):
            at = datetime.combine(date.fromisoformat(plain), beside.time())
        elif "T" in plain:
            at = datetime.fromisoformat(plain)
        else:
            raise _no_moment(text)  # a day: a lab from midnight on is not what was meant
    except (ValueError, OverflowError):
        raise _no_moment(text) from None
    if at.tzinfo is not None or not 2000 <= at.year <= 2200:
        raise _no_moment(text)
    return at.replace(microsecond=0)


def _no_moment(text: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_calendar",
        f"{text!r} is no time that can be used.",
        next_step="Write what the clock on the wall shows, such as 2026-03-02T14:00, and the zone "
        "beside it.",
    )


def body_of(reservation: Reservation) -> dict[str, Any]:
    """Return the members that make a reservation, as JSON: what a file holds of it."""
    calendar = reservation.calendar
    return {
        "name": reservation.name,
        "group": reservation.group,
        "title": reservation.title,
        "gpu_class": reservation.gpu_class,
        "seats": reservation.seats,
        "start": wall_text(calendar.start),
        "end": wall_text(calendar.end),
        "zone": calendar.zone,
        "repeat": calendar.repeat,
        "also": [wall_text(at) for at in calendar.also],
        "without": [wall_text(at) for at in calendar.without],
        "changed": [
            moved_view(each) for each in sorted(calendar.changed, key=lambda each: each.original)
        ],
        "seats_per_person": reservation.seats_per_person,
        "named": list(reservation.named),
        "managers": list(reservation.managers),
        "idle": reservation.idle,
        "exam": reservation.exam,
        "extra_time": dict(reservation.extra_time),
        "lead": reservation.lead,
        "grace": reservation.grace,
        "contact": list(reservation.contact),
    }


def moved_view(changed: Changed) -> dict[str, Any]:
    """Return the change of one window as it is sent."""
    at = wall_text(changed.original)
    if changed.start is None or changed.end is None:
        return {"at": at, "cancelled": True}
    return {"at": at, "start": wall_text(changed.start), "end": wall_text(changed.end)}
