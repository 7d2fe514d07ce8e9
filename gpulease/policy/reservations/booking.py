"""May this be reserved, does it fit, and what would fit instead.

It checks what is asked for, then what the site allows, then what is free.  A refusal names the
first thing in the way and the nearest window that fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.occurrences import Occurrence, span, wall_clock, zone_of
from gpulease.policy.calendar.reservation import Reservation, Window, windows_of
from gpulease.policy.model import PolicyDocument
from gpulease.policy.reservations.feasibility import (
    Conflict,
    Offer,
    Pool,
    allowed_classes,
    conflicts,
    nearest,
    offer_for,
    opened_by,
    steps_of,
)
from gpulease.sizes import say_day, say_duration, say_moment
from gpulease.texts import Text, counted, joined

#: Seconds of a reservation's own lead, where the site's is not longer: GPUs that are kept free
#: before a window are in nobody's sum of GPU-hours.
LEAD_MOST: Final = 3600.0


def pool_of(policy: PolicyDocument, reservation: Reservation) -> str:
    """Return the pool that a reservation draws on, ``""`` where its class is gone."""
    return next((c.pool for c in policy.classes if c.name == reservation.gpu_class), "")


def windows(policy: PolicyDocument, reservation: Reservation) -> list[Window]:
    """Return every window of a reservation under a policy."""
    return windows_of(reservation, policy.reservations, pool_of(policy, reservation))


def check(
    wanted: Reservation,
    others: Iterable[Reservation],
    policy: PolicyDocument,
    *,
    pools: Mapping[str, Pool],
    now: datetime,
    before: Reservation | None = None,
) -> None:
    """Refuse a reservation that may not be made, or does not fit.

    Args:
        wanted: with its occurrences, and the times that closures left out.
        others: every other reservation.
        policy: the document in force.
        pools: the firm capacity of each pool.
        now: the present.
        before: the reservation as it is booked, where this is a change of it.

    Raises:
        GPULeaseError: ``reservation_refused`` (422) what the site does not allow,
            ``reservation_conflict`` (409) what does not fit.
    """
    _refuse_members(wanted, policy)
    ahead = [w for w in windows(policy, wanted) if w.last_end > now]
    booked = [
        w
        for other in others
        if other.id != wanted.id
        for w in windows(policy, other)
        if w.last_end > now
    ]
    closed = _newly_closed(wanted, before, ahead)
    if closed is not None:
        raise _is_closed(wanted, closed, booked, policy=policy, pools=pools, now=now)
    if not ahead and before is not None:
        return  # its last window was ended early: that needs nothing
    if not ahead:
        raise refused(
            Text("Every session of {name} is over already.", name=wanted.name),
            Text("Choose a future time."),
        )
    _refuse_times(wanted, ahead, policy, now, before)
    _refuse_stacking(wanted, ahead, [w for w in booked if w.of.group == wanted.group], policy)
    # What is booked already cannot be refused any more, only what a change adds to it.
    booked_already = _booked(before, wanted, policy)
    kept = [w for w in ahead if (w.key, w.start, w.end) in booked_already]
    found = conflicts([w for w in ahead if w not in kept], [*booked, *kept], pools)
    if found:
        other = offer_for(wanted, ahead, booked, policy=policy, pools=pools, now=now)
        raise _conflict(wanted, len(ahead), found, other)


def _newly_closed(
    wanted: Reservation, before: Reservation | None, ahead: Sequence[Window]
) -> tuple[datetime, str] | None:
    """Return the closure that a person is notified of: of a series the rest is still there, but
    what has no other window, or was just moved to a closed day, would be gone without a word.
    """
    moved_before = {each.start for each in before.calendar.changed} if before is not None else set()
    moved = {each.start for each in wanted.calendar.changed} - moved_before
    new = wanted.closed if before is None or before.calendar != wanted.calendar else ()
    return next((each for each in new if not ahead or each[0] in moved), None)


def _is_closed(
    wanted: Reservation,
    closed: tuple[datetime, str],
    booked: Sequence[Window],
    *,
    policy: PolicyDocument,
    pools: Mapping[str, Pool],
    now: datetime,
) -> GPULeaseError:
    start, title = closed
    zone = zone_of(wanted.calendar.zone)
    changed = (each for each in wanted.calendar.changed if each.start == start)
    length = wanted.calendar.end - wanted.calendar.start
    end = next((each.end for each in changed if each.end is not None), start + length)
    one = replace(wanted, occurrences=(Occurrence(start, *span(start, end, zone)),))
    move = nearest(windows(policy, one), booked, pools, now, opened_by(wanted, policy))
    found = wall_clock(one.occurrences[0].start + move, zone) if move is not None else None
    offer = Offer(nearest=found)
    return refused(
        Text("Nothing is open on {start}: {title}.", start=say_day(start), title=title),
        steps_of(offer, wanted.seats) if found is not None else Text("Choose another day."),
        closed=title,
        offer=offer.to_json(),
    )


def fits_beside(
    reservation: Reservation,
    one: Occurrence,
    others: Iterable[Reservation],
    policy: PolicyDocument,
    pools: Mapping[str, Pool],
) -> bool:
    """Return whether one more window of a reservation fits beside what is booked."""
    wanted = windows(policy, replace(reservation, occurrences=(one,)))
    booked = [w for other in others for w in windows(policy, other) if w.key != wanted[0].key]
    return not conflicts(wanted, booked, pools)


def refused(sentence: str, next_step: str, **numbers: Any) -> GPULeaseError:
    """Return the refusal of what a site does not allow."""
    return GPULeaseError("reservation_refused", sentence, next_step=next_step, numbers=numbers)


def _booked(
    before: Reservation | None, wanted: Reservation, policy: PolicyDocument
) -> set[tuple[str, datetime, datetime]]:
    """Return the windows of a reservation that a change of it may have without asking."""
    if before is None or wanted.seats > before.seats:
        return set()
    if (before.gpu_class, before.extra_time) != (wanted.gpu_class, wanted.extra_time):
        return set()
    return {(w.key, w.start, w.end) for w in windows(policy, before)}


def _refuse_class(wanted: Reservation, policy: PolicyDocument) -> None:
    gpu_class = policy.by_name.get(wanted.gpu_class)
    if gpu_class is not None and gpu_class.parts:
        raise refused(
            Text("Class '{name}' is a part of a card: seats are whole GPUs.", name=gpu_class.name),
            Text("Reserve a class of whole GPUs."),
        )
    classes = allowed_classes(policy, wanted.group)
    if wanted.gpu_class not in classes:
        raise refused(
            Text("There is no class '{name}'.", name=wanted.gpu_class)
            if gpu_class is None
            else Text(
                "{group} may not reserve the class '{name}'.",
                group=wanted.group,
                name=wanted.gpu_class,
            ),
            Text("Reserve one of: {names}.", names=", ".join(classes))
            if classes
            else Text("Ask an admin."),
            classes=list(classes),
        )


def _refuse_members(wanted: Reservation, policy: PolicyDocument) -> None:
    _refuse_class(wanted, policy)
    terms = policy.reservations
    if wanted.seats_per_person > wanted.seats:
        raise refused(
            Text(
                "One person could claim {n} seats, but the reservation has {all}.",
                n=wanted.seats_per_person,
                all=wanted.seats,
            ),
            Text("Give more seats, or fewer to each person."),
        )
    if wanted.idle is not None and not terms.idle.least <= wanted.idle <= terms.idle.most:
        raise refused(
            Text(
                "An idle time-out of {time} is not possible here.", time=say_duration(wanted.idle)
            ),
            Text(
                "Choose from {least} to {most}.",
                least=say_duration(terms.idle.least),
                most=say_duration(terms.idle.most),
            ),
            least=terms.idle.least,
            most=terms.idle.most,
        )
    if wanted.lead is not None and wanted.lead > max(terms.lead, LEAD_MOST):
        raise refused(
            Text("A lead of {time} is too long.", time=say_duration(wanted.lead)),
            Text("At most {time} is possible here.", time=say_duration(max(terms.lead, LEAD_MOST))),
            most=max(terms.lead, LEAD_MOST),
        )
    for person, more in wanted.extra_time:
        if more > terms.extra_time:
            raise refused(
                Text(
                    "{person} would have {time} of extra time.",
                    person=person,
                    time=say_duration(more),
                ),
                Text("At most {time} is possible here.", time=say_duration(terms.extra_time)),
                most=terms.extra_time,
            )


def _refuse_times(
    wanted: Reservation,
    ahead: Sequence[Window],
    policy: PolicyDocument,
    now: datetime,
    before: Reservation | None,
) -> None:
    terms, own = policy.reservations, policy.reservations.of_group(wanted.group)
    booked = {w.original: w for w in windows(policy, before)} if before is not None else {}
    for window in ahead:
        length = (window.end - window.start).total_seconds()
        known = booked.get(window.original)
        longer = length - (known.end - known.start).total_seconds() if known is not None else length
        if length > terms.longest:
            raise refused(
                Text("A session of {time} is too long.", time=say_duration(length)),
                Text("A session may last {time} at most.", time=say_duration(terms.longest)),
                most=terms.longest,
            )
        if known is not None and known.start <= now and longer > terms.extension:
            raise refused(
                Text(
                    "A session in progress can be extended by {time} at most.",
                    time=say_duration(terms.extension),
                ),
                Text("Reserve another session for the time after it."),
                most=terms.extension,
            )
    advance = timedelta(seconds=own.advance or 0.0)
    # A series may reach as far as it likes: what is bounded is how early it is booked.
    if min(w.start for w in ahead) > now + advance:
        raise refused(
            Text("The first session is more than {days} days away.", days=advance.days),
            Text("Reserve it from {day} on.", day=say_day(ahead[0].start - advance)),
            days=advance.days,
        )


def _refuse_stacking(
    wanted: Reservation, ahead: Sequence[Window], booked: Sequence[Window], policy: PolicyDocument
) -> None:
    own = policy.reservations.of_group(wanted.group)
    number = len(ahead) + len(booked)
    if own.windows is not None and number > own.windows:
        raise refused(
            Text(
                "{group} would have {n} sessions ahead; it may have {most}.",
                group=wanted.group,
                n=number,
                most=own.windows,
            ),
            Text("Shorten the series, or cancel what you do not need."),
            windows=number,
            most=own.windows,
        )
    hours = gpu_hours([*ahead, *booked])
    if own.gpu_hours is not None and hours > own.gpu_hours:
        raise refused(
            Text(
                "{group} would have reserved {hours} GPU-hours ahead; it may have {most}.",
                group=wanted.group,
                hours=f"{hours:.0f}",
                most=f"{own.gpu_hours:.0f}",
            ),
            Text("Reserve fewer seats or sessions, or ask an admin."),
            gpu_hours=hours,
            most=own.gpu_hours,
        )


def gpu_hours(ahead: Iterable[Window]) -> float:
    """Return the GPU-hours that windows keep; extra time is no part of them."""
    return sum(w.of.seats * (w.end - w.start).total_seconds() / 3600 for w in ahead)


def _conflict(
    wanted: Reservation, ahead: int, found: Sequence[Conflict], offer: Offer
) -> GPULeaseError:
    first = found[0]
    said: list[str] = [
        counted(
            "{seats} x {gpu_class} will not fit on {start}: {n} is missing from {time} on.",
            "{seats} x {gpu_class} will not fit on {start}: {n} are missing from {time} on.",
            first.missing,
            seats=wanted.seats,
            gpu_class=wanted.gpu_class,
            start=_at(first.window, first.window.start),
            time=_at(first.window, first.at),
        )
    ]
    if first.others:
        others = "; ".join(_named(other, first.window) for other in first.others)
        said.append(Text("Reserved then: {others}.", others=others))
    if len(found) > 1:
        figures = {"n": len(found), "all": ahead}
        said.append(Text("{n} of {all} sessions do not fit.", **figures))
    return GPULeaseError(
        "reservation_conflict",
        joined(*said),
        next_step=steps_of(offer, wanted.seats),
        numbers={
            "missing": first.missing,
            "conflicts": [_conflict_json(each) for each in found[:20]],
            "offer": offer.to_json(),
        },
    )


def _conflict_json(found: Conflict) -> dict[str, Any]:
    return {
        "start": found.window.start.isoformat(),
        "at": found.at.isoformat(),
        "missing": found.missing,
        "others": [
            {
                "group": other.of.group,
                "name": other.of.name,
                "seats": other.of.seats,
                "start": other.start.isoformat(),
                "end": other.end.isoformat(),
            }
            for other in found.others
        ],
    }


def _named(other: Window, window: Window) -> str:
    zone = zone_of(window.of.calendar.zone)
    start, end = wall_clock(other.start, zone), wall_clock(other.last_end, zone)
    return f"{other.of.seats} for {other.of.group}, {start:%H:%M}-{end:%H:%M}"


def _at(window: Window, at: datetime) -> str:
    return say_moment(wall_clock(at, zone_of(window.of.calendar.zone)))
