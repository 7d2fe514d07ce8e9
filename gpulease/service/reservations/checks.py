"""Whether a reservation fits, with its windows and what it will be short of.

Notes name what may not be meant; they refuse nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.occurrences import Calendar, Closure, Expanded, wall_clock, zone_of
from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.capacity import in_service, promised_devices
from gpulease.policy.model import PolicyDocument, Snapshot
from gpulease.policy.reservations import booking
from gpulease.policy.reservations.feasibility import Pool
from gpulease.policy.reservations.reports import Shortage, shortage
from gpulease.policy.reservations.seats import effective
from gpulease.service.hubs.api import HubUnreachableError
from gpulease.service.reservations.expansion import Wanted, expanded
from gpulease.service.workers import Workers
from gpulease.sizes import say_moment
from gpulease.texts import Text

log = logging.getLogger(__name__)


@dataclass
class Known:
    """What one person's calendars were expanded to, or why they could not be."""

    whose: str
    found: dict[tuple[Calendar, tuple[Closure, ...]], Expanded | GPULeaseError] = field(
        default_factory=dict
    )


@dataclass(frozen=True)
class Checked:
    """A reservation as it is or would be, with what its calendar gave.

    ``problem``: why not; ``short``: how it has fewer seats than people, or than it reserves;
    ``notes``: what may be a slip of the pen.
    """

    reservation: Reservation
    expanded: Expanded
    problem: GPULeaseError | None = None
    short: Shortage | None = None
    notes: tuple[str, ...] = ()


@dataclass(eq=False)
class Checks:
    """Looks at reservations off the event loop, against what is known now.

    Args:
        policy: the document in force.
        snapshot: what is known now.
        members: gives the names of a group's members.
        workers: where what people wrote is worked out.
    """

    policy: Callable[[], PolicyDocument]
    snapshot: Callable[[], Snapshot]
    members: Callable[[str], Awaitable[Sequence[str]]]
    workers: Workers

    async def known(self, whose: str, every: Sequence[Reservation]) -> Known:
        """Expand the calendars of reservations, before others have to wait for it.

        Raises:
            GPULeaseError: ``too_many_requests``.
        """
        now, closures = self.snapshot().now, self.policy().reservations.closures
        wanted = [Wanted(each.calendar, closures, each.created, now) for each in every]
        found = await expanded(self.workers, whose, wanted)
        pairs = zip(wanted, found, strict=True)
        return Known(whose, {(each.calendar, closures): one for each, one in pairs})

    async def expanded(self, wanted: Reservation, known: Known) -> Expanded:
        """Return the occurrences of a reservation's calendar.

        Raises:
            GPULeaseError: ``bad_calendar``.
        """
        key = wanted.calendar, self.policy().reservations.closures
        if key not in known.found:  # the reservation, or the closures, were changed meanwhile
            known.found |= (await self.known(known.whose, [wanted])).found
        found = known.found[key]
        if isinstance(found, GPULeaseError):
            raise found
        return found

    async def checked(
        self,
        wanted: Reservation,
        before: Reservation | None,
        others: Iterable[Reservation],
        known: Known,
    ) -> Checked:
        """Return a reservation with its windows, if it fits beside the others.

        Args:
            wanted: what it would be.
            before: what it is now, where it is changed.
            others: what is reserved besides; the one that is changed may be among them.
            known: who makes it, and calendars that were expanded already.

        Raises:
            GPULeaseError: ``capacity_unknown``, ``bad_calendar``, ``reservation_refused``,
                ``reservation_conflict``.
        """
        policy = self.policy()
        found = await self.expanded(wanted, known)
        whole = replace(wanted, occurrences=found.occurrences, closed=found.skipped)
        others, pools, now = list(others), self.firm(), self.snapshot().now
        await self.workers.thread(
            known.whose, booking.check, whole, others, policy,
            pools=pools, now=now, before=before,
        )  # fmt: skip
        roster = await self._roster(whole.group)
        short = self._short(whole, others, pools, whole.named or roster or ())
        return Checked(whole, found, short=short, notes=tuple(notes_of(whole, found, roster)))

    async def fits(self, whole: Reservation, others: Iterable[Reservation], known: Known) -> bool:
        """Tell whether a reservation could be made again, with the windows that it has."""
        others, pools, now = list(others), self.firm(), self.snapshot().now
        try:
            await self.workers.thread(
                known.whose, booking.check, whole, others, self.policy(), pools=pools, now=now
            )
        except GPULeaseError:
            return False
        return True

    async def _roster(self, group: str) -> Sequence[str] | None:
        """Return a group's members, ``None`` where the hub does not say."""
        try:
            return await self.members(group)
        except HubUnreachableError as error:
            log.warning("the members of %s are not known: %s", group, error)
            return None

    def _short(
        self,
        reservation: Reservation,
        others: Iterable[Reservation],
        pools: Mapping[str, Pool],
        people: Sequence[str],
    ) -> Shortage | None:
        """Return what its first window to come lacks."""
        snapshot = self.snapshot()
        ahead = [w for w in booking.windows(snapshot.policy, reservation) if w.end > snapshot.now]
        if not ahead:
            return None
        planned = snapshot.capacity_known and any(w.key == ahead[0].key for w in snapshot.windows)
        seats = effective(snapshot, ahead[0], snapshot.now) if planned else reservation.seats
        return shortage(
            ahead[0], seats, len(people), others,
            policy=snapshot.policy, pools=pools, now=snapshot.now,
        )  # fmt: skip

    def firm(self) -> dict[str, Pool]:
        """Return the firm capacity of each pool: the devices that are there, never spot ones.

        Raises:
            GPULeaseError: ``capacity_unknown`` (503).
        """
        snapshot = self.snapshot()
        if not snapshot.capacity_known:
            raise GPULeaseError(
                "capacity_unknown",
                "The GPUs of this site are not known at present.",
                next_step="Try again in a minute; tell an admin if it stays so.",
            )
        there = in_service(snapshot)
        return {
            pool.name: Pool(
                promised_devices(snapshot.policy, pool.name, len(there.get(pool.name, ()))),
                pool.spare,
                snapshot.policy.projects.guarantees(pool.name),
            )
            for pool in snapshot.policy.pools
        }


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
                "The clocks skip {at}: that session begins at {time}.",
                at=say_moment(each.original),
                time=f"{shown:%H:%M}",
            )
