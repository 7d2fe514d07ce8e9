"""Labs that will be short of seats: how many there are, for whom, and what would help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpulease.policy.calendar import wall_clock, zone_of
from gpulease.policy.calendar.reservation import Reservation, Window
from gpulease.policy.model import PolicyDocument
from gpulease.policy.reservations.booking import windows
from gpulease.policy.reservations.feasibility import Offer, Pool, offer_for, seats_fit, steps_of
from gpulease.policy.units import say_moment
from gpulease.texts import Text, counted


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
        nothing = Text("Whoever comes first has a seat.")
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
