"""What would fit in place of a reservation that does not: another time, fewer seats, another class,
or two sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpulease.policy.calendar import closure_of, wall_clock, zone_of
from gpulease.policy.calendar.reservation import Reservation, Window
from gpulease.policy.model import PolicyDocument
from gpulease.policy.reservations.feasibility import Pool, conflicts, most_seats, nearest
from gpulease.policy.units import say_moment
from gpulease.texts import Text, counted, joined


@dataclass(frozen=True)
class Offer:
    """What would fit instead of what was asked for; every member may be missing."""

    nearest: datetime | None = None  # the start of the first window, wall clock
    seats: int = 0  # so many fit at the time that was asked for
    classes: tuple[str, ...] = ()  # these have room then
    split: datetime | None = None  # half the seats, and a second session at this time

    def to_json(self) -> dict[str, Any]:
        """Return the members as JSON values."""
        return {
            "nearest": _minutes(self.nearest),
            "seats": self.seats,
            "classes": list(self.classes),
            "split": _minutes(self.split),
        }


def allowed_classes(policy: PolicyDocument, group: str) -> tuple[str, ...]:
    """Return the names of the classes that a group may reserve.

    What a queue of the cluster's admits cannot be promised to anybody, and a seat is a whole GPU.
    """
    allowed = policy.reservations.of_group(group).classes
    ours = [c.name for c in policy.classes if c.queue is None and not c.parts]
    return tuple(name for name in ours if not allowed or name in allowed)


def opened_by(wanted: Reservation, policy: PolicyDocument) -> Callable[[Window], bool]:
    """Return what tells whether a window lies on days on which the institution is open."""
    closures, zone = policy.reservations.closures, zone_of(wanted.calendar.zone)

    def is_open(window: Window) -> bool:
        ends = wall_clock(window.start, zone), wall_clock(window.end, zone)
        return closure_of(*ends, closures) is None

    return is_open


def offer_for(
    wanted: Reservation,
    ahead: Sequence[Window],
    booked: Sequence[Window],
    *,
    policy: PolicyDocument,
    pools: Mapping[str, Pool],
    now: datetime,
) -> Offer:
    """Return what would fit in place of windows that do not; ``booked`` are all others."""
    zone = zone_of(wanted.calendar.zone)
    opened = opened_by(wanted, policy)
    move = nearest(ahead, booked, pools, now, opened)
    classes = [
        c.name
        for c in policy.classes
        if c.name != wanted.gpu_class
        and c.name in allowed_classes(policy, wanted.group)
        and not conflicts([replace(w, pool=c.pool) for w in ahead], booked, pools)
    ]
    half = [replace(w, of=replace(w.of, seats=-(-w.of.seats // 2))) for w in ahead]
    later = [replace(w, original=w.end, start=w.end, end=w.end + (w.end - w.start)) for w in half]
    splits = wanted.seats > 1 and all(map(opened, later))
    splits = splits and not conflicts([*half, *later], booked, pools)
    return Offer(
        nearest=wall_clock(ahead[0].start + move, zone) if move is not None else None,
        seats=most_seats(ahead, booked, pools),
        classes=tuple(classes),
        split=wall_clock(later[0].start, zone) if splits else None,
    )


def steps_of(
    offer: Offer,
    seats: int,
    nothing: str = Text("Ask an admin: nothing fits within two weeks."),
) -> str:
    """Return in sentences what a person who needs ``seats`` can do; ``nothing`` if nothing fits."""
    found: list[str] = []
    if offer.nearest is not None:
        start = say_moment(offer.nearest)
        found.append(Text("The nearest time that fits begins at {start}.", start=start))
    if offer.seats:
        found.append(seats_fit(offer.seats))
    if offer.classes:
        found.append(Text("The class {classes} has room then.", classes=" / ".join(offer.classes)))
    if offer.split is not None:
        half = {"n": -(-seats // 2), "time": f"{offer.split:%H:%M}"}
        found.append(
            Text("Or split it: {n} of the seats then and {n} from {time}.", **half)
            if found
            else Text("Split it: {n} of the seats then and {n} from {time}.", **half)
        )
    return joined(*found) if found else nothing


def seats_fit(seats: int) -> Text:
    """Return that so many seats could be reserved at the time that was asked for."""
    return counted("{n} seat fits at your time.", "{n} seats fit at your time.", seats)


def _minutes(at: datetime | None) -> str | None:
    return at.isoformat(timespec="minutes") if at is not None else None
