"""What other terms of reservations mean for whom: the part of ``audience`` that is about labs."""

from __future__ import annotations

from collections.abc import Iterator

from gpulease.policy.calendar import Closure
from gpulease.policy.calendar.reservation import GroupTerms, ReservationTerms
from gpulease.policy.units import at_midnight, say_count, say_day, say_duration


def of_reservations(old: ReservationTerms, new: ReservationTerms) -> Iterator[str]:
    """Yield a sentence for each thing that changes for those who reserve, and for their groups."""
    for name, said in (
        ("lead", "GPUs are made free {new} before a lab, not {old}."),
        ("grace", "a seat that nobody takes is lent to others after {new}, not {old}."),
        ("advance", "they may reserve {new} ahead, not {old}."),
        ("longest", "a lab may last {new}, not {old}."),
        ("extension", "a lab that is open may be prolonged by {new}, not {old}."),
        ("extra_time", "one person may be given {new} of extra time, not {old}."),
    ):
        was, will = getattr(old, name), getattr(new, name)
        if was != will:
            yield "Instructors: " + said.format(old=say_duration(was), new=say_duration(will))
    if old.gpu_hours != new.gpu_hours:
        yield (
            f"Instructors: a group may have {new.gpu_hours:g} GPU-hours reserved ahead, not"
            f" {old.gpu_hours:g}."
        )
    if old.windows != new.windows:
        windows = say_count(new.windows, "window", "windows")
        yield f"Instructors: a group may have {windows} ahead, not {old.windows}."
    if (old.idle.least, old.idle.most) != (new.idle.least, new.idle.most):
        yield (
            "Instructors: a lab's own idle time-out may be from"
            f" {say_duration(new.idle.least)} to {say_duration(new.idle.most)}."
        )
    if old.classes != new.classes:
        yield f"Instructors: they may reserve {', '.join(new.classes) or 'every class'}."
    yield from _closures(old, new)
    yield from _groups(old, new)


def _closures(old: ReservationTerms, new: ReservationTerms) -> Iterator[str]:
    for each in (closure for closure in new.closures if closure not in old.closures):
        yield (
            f"Nobody has a lab {_days(each)}: windows that are reserved then go, but for one that"
            " has begun."
        )
    for each in (closure for closure in old.closures if closure not in new.closures):
        yield (
            f"There may be labs again {_days(each)}: windows that went for it come back where they"
            " still fit."
        )


def _days(closure: Closure) -> str:
    first, last = say_day(at_midnight(closure.first)), say_day(at_midnight(closure.last))
    when = f"on {first}" if closure.first == closure.last else f"from {first} to {last}"
    return f"{when} ({closure.title})" if closure.title else when


def _groups(old: ReservationTerms, new: ReservationTerms) -> Iterator[str]:
    was, will = dict(old.groups), dict(new.groups)
    for group in dict.fromkeys([*was, *will]):
        yield from _group(group, was.get(group, GroupTerms()), will.get(group, GroupTerms()))


def _group(group: str, was: GroupTerms, will: GroupTerms) -> Iterator[str]:
    for person in (each for each in will.managers if each not in was.managers):
        yield f"{person}: may reserve for {group}, see its leases and end them."
    for person in (each for each in was.managers if each not in will.managers):
        yield f"{person}: may no longer reserve for {group}, see its leases and end them."
    who = f"Instructors of {group}"
    if was.classes != will.classes:
        what = "what all may" if will.classes is None else ", ".join(will.classes) or "nothing"
        yield f"{who}: they may reserve {what}."
    if was.gpu_hours != will.gpu_hours:
        hours = "as all" if will.gpu_hours is None else f"{will.gpu_hours:g} GPU-hours"
        yield f"{who}: the group may have reserved {hours} ahead."
    if was.windows != will.windows:
        most = "as all" if will.windows is None else say_count(will.windows, "window", "windows")
        yield f"{who}: the group may have {most} ahead."
    if was.advance != will.advance:
        early = "as all" if will.advance is None else f"{say_duration(will.advance)} ahead"
        yield f"{who}: they may reserve {early}."
    if was.image != will.image:
        image = f"the image {will.image}" if will.image else "no image of the course's own"
        yield f"Members of {group}: who starts on one of its seats gets {image}."
