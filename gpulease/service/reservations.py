"""The reservations of the site: who may make and change them, and the windows that count now.

Owns the order "checked, stored, then true", one change at a time.  Refuses to decide what fits
(``policy.reservations``) and to know HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar import Expanded
from gpulease.policy.calendar.reservation import Reservation, Window
from gpulease.policy.capacity.devices import in_service
from gpulease.policy.capacity.growth import promised
from gpulease.policy.model import PolicyDocument, Snapshot
from gpulease.policy.reservations import booking
from gpulease.policy.reservations.feasibility import Pool
from gpulease.policy.reservations.seats import effective
from gpulease.policy.reservations.shortage import Shortage, shortage
from gpulease.service.auth import Asker
from gpulease.service.expansion import expanded
from gpulease.service.hubapi import HubUnreachableError
from gpulease.service.ledger import Ledger
from gpulease.service.notify import Notice
from gpulease.service.reservation_bodies import (
    OF_KEY,
    ChangeBody,
    ReservationBody,
    changed,
    id_of,
    made,
)
from gpulease.store import key_reused
from gpulease.store.reservations import ReservationEvent, drop

log = logging.getLogger(__name__)

#: Reservations that are taken away in one transaction.
AT_ONCE = 50
#: The planner sees windows whose hold begins within this time.
AHEAD = timedelta(days=1)


@dataclass(frozen=True)
class Outcome:
    """A reservation as it is or would be, with what its calendar gave.

    ``problem``: why not; ``short``: how it has fewer seats than people, or than it reserves.
    """

    reservation: Reservation
    expanded: Expanded
    problem: GPULeaseError | None = None
    short: Shortage | None = None


class Reservations:
    """Every reservation, in memory and in the store.

    Args:
        ledger: reaches the store.
        policy: the document in force.
        snapshot: what is known now.
        changed: called after a change, so that a plan is made.
        tell: called with what the people of a reservation have to know.
        members: gives the names of a group's members.
    """

    def __init__(
        self,
        ledger: Ledger,
        policy: Callable[[], PolicyDocument],
        snapshot: Callable[[], Snapshot],
        changed: Callable[[], None],
        *,
        tell: Callable[[Notice], None],
        members: Callable[[str], Awaitable[Sequence[str]]],
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._snapshot = snapshot
        self._changed = changed
        self._tell = tell
        self._members = members
        self.lock = asyncio.Lock()
        self._known: dict[str, Reservation] = {}
        self._listed: tuple[PolicyDocument | None, list[Window]] = (None, [])

    async def load(self) -> None:
        """Read what is stored."""
        for each in await self._ledger.call(self._ledger.store.reservations):
            self._known[each.id] = each

    def all(self) -> list[Reservation]:
        """Return the reservations that are not cancelled, oldest first."""
        return [each for each in self._known.values() if not each.cancelled]

    def seen_by(
        self, asker: Asker, *, group: str = "", cancelled: bool = False
    ) -> list[Reservation]:
        """Return the reservations that somebody may see, those whose windows begin first before."""
        found = [
            each
            for each in self._known.values()
            if (cancelled or not each.cancelled)
            and group in ("", each.group)
            and self.may_see(asker, each)
        ]
        return sorted(found, key=lambda each: (each.calendar.start, each.created, each.id))

    def windows(self, now: datetime) -> tuple[Window, ...]:
        """Return the windows that are open, or whose hold begins within a day."""
        policy = self._policy()
        if self._listed[0] is not policy:
            every = [w for each in self.all() for w in booking.windows(policy, each)]
            self._listed = policy, every
        return tuple(w for w in self._listed[1] if w.hold_from <= now + AHEAD and now < w.last_end)

    def visible(self, asker: Asker, reservation_id: str) -> Reservation:
        """Return a reservation that somebody may see; others do not exist for them.

        Raises:
            GPULeaseError: ``no_such_reservation`` (404).
        """
        found = self._known.get(reservation_id)
        if found is None or not self.may_see(asker, found):
            raise GPULeaseError(
                "no_such_reservation",
                "There is no such reservation, or it is not yours to see.",
                next_step="Look at the list of reservations.",
                status=404,
            )
        return found

    def may_see(self, asker: Asker, reservation: Reservation) -> bool:
        """Tell whether somebody manages a reservation, or may claim its seats."""
        own = reservation.group in asker.groups or asker.name in reservation.named
        return self.may_manage(asker, reservation) or own

    def may_manage(self, asker: Asker, reservation: Reservation) -> bool:
        """Tell whether somebody may change a reservation."""
        return asker.name in reservation.managers or self.may_reserve(asker, reservation.group)

    def may_reserve(self, asker: Asker, group: str) -> bool:
        """Tell whether somebody may reserve for a group: its instructors, managers and admins."""
        managed = self._policy().reservations.managed_by(asker.name)
        return asker.teaches(group) or asker.admin or group in managed

    async def book(
        self, asker: Asker, body: ReservationBody, key: str = ""
    ) -> tuple[Outcome, bool]:
        """Make a reservation; with the same key a repeated one is the same.

        Raises:
            GPULeaseError: ``may_not_reserve`` (403), ``name_taken`` (409), ``bad_calendar``,
                ``reservation_refused`` (422), ``reservation_conflict`` (409), ``key_reused`` (422).
        """
        async with self.lock:
            return await self._book(asker, body, key)

    async def _book(self, asker: Asker, body: ReservationBody, key: str) -> tuple[Outcome, bool]:
        self._allow(asker, body.group)
        reservation_id = id_of(asker.name, key, body)
        for known in self._known.values() if key else ():
            if known.id[:OF_KEY] != reservation_id[:OF_KEY]:
                continue
            if known.id != reservation_id:
                raise key_reused()
            return Outcome(known, Expanded(known.occurrences)), False
        self._refuse_name(body.group, body.name)
        wanted = made(body, reservation_id, asker.name, self._snapshot().now)
        outcome = await self._checked(wanted, None, self.all())
        await self.save(None, outcome.reservation, asker.name, "booked")
        return outcome, True

    async def change(self, asker: Asker, reservation_id: str, body: ChangeBody) -> Outcome:
        """Change a reservation.

        Raises:
            GPULeaseError: those of ``book``, ``no_such_reservation``, ``reservation_changed``.
        """
        async with self.lock:
            return await self._change(asker, reservation_id, body)

    async def _change(self, asker: Asker, reservation_id: str, body: ChangeBody) -> Outcome:
        before = self.manageable(asker, reservation_id)
        if body.base_version not in (None, before.version):
            raise GPULeaseError(
                "reservation_changed",
                f"It is at version {before.version} now; you changed {body.base_version}.",
                next_step="Load it, make your change again and save.",
                numbers={"version": before.version},
                status=409,
            )
        wanted = changed(before, body, self._snapshot().now)
        outcome = await self._checked(wanted, before, self.all())
        after = replace(outcome.reservation, version=before.version + 1)
        await self.save(before, after, asker.name, "changed")
        self._told_of(asker, after, "changed")
        return replace(outcome, reservation=after)

    async def cancel(self, asker: Asker, reservation_id: str, note: str = "") -> Reservation:
        """Cancel a reservation; a repeat changes nothing.

        Raises:
            GPULeaseError: ``no_such_reservation``, ``may_not_reserve``.
        """
        async with self.lock:
            before = self.manageable(asker, reservation_id)
            if before.cancelled:
                return before
            after = replace(before, cancelled=True, version=before.version + 1)
            await self.save(before, after, asker.name, "cancelled", note)
            self._told_of(asker, after, "cancelled", note)
            return after

    async def check(self, asker: Asker, bodies: Sequence[ReservationBody]) -> list[Outcome]:
        """Say of several reservations whether they would fit, one after the other; nothing is done.

        Raises:
            GPULeaseError: ``may_not_reserve``, and ``bad_calendar`` of what cannot be read.
        """
        there, found, now = self.all(), [], self._snapshot().now
        for number, body in enumerate(bodies):
            self._allow(asker, body.group)
            before = self.named(body.group, body.name)
            if before is None:
                wanted = made(body, f"check-{number}", asker.name, now)
            else:
                wanted = changed(before, body, now)
            try:
                outcome = await self._checked(wanted, before, there)
            except GPULeaseError as error:
                occurrences = await expanded(wanted.calendar, self._policy().reservations.closures)
                wanted = replace(wanted, closed=occurrences.skipped)
                outcome = Outcome(wanted, occurrences, error)
            else:
                rest = [each for each in there if each.id != wanted.id]
                there = [*rest, outcome.reservation]
            found.append(outcome)
        return found

    async def bring(
        self, asker: Asker, bodies: Sequence[ReservationBody], *, dry_run: bool
    ) -> tuple[list[Outcome], bool]:
        """Make or change several reservations, all of them or none; return whether it was done.

        Raises:
            GPULeaseError: those of ``check``, and of the store.
        """
        async with self.lock:
            found = await self.check(asker, bodies)
            if dry_run or any(each.problem is not None for each in found):
                return found, False
            return [await self._brought(asker, each) for each in bodies], True

    async def _brought(self, asker: Asker, body: ReservationBody) -> Outcome:
        before = self.named(body.group, body.name)
        if before is None:
            return (await self._book(asker, body, ""))[0]
        if changed(before, body, self._snapshot().now) == before:
            return Outcome(before, Expanded(before.occurrences))
        return await self._change(asker, before.id, body)

    def named(self, group: str, name: str) -> Reservation | None:
        """Return a group's reservation of a name that is not cancelled."""
        mine = (each for each in self.all() if (each.group, each.name) == (group, name))
        return next(mine, None)

    def firm(self) -> dict[str, Pool]:
        """Return the firm capacity of each pool: the devices that are there, never spot ones.

        Raises:
            GPULeaseError: ``capacity_unknown`` (503).
        """
        snapshot = self._snapshot()
        if not snapshot.capacity_known:
            raise GPULeaseError(
                "capacity_unknown",
                "Which GPUs are there is not known at present.",
                next_step="Try again in a minute; tell an admin if it stays so.",
                status=503,
            )
        there = in_service(snapshot)
        return {
            pool.name: Pool(
                promised(snapshot.policy, pool.name, len(there.get(pool.name, ()))),
                pool.spare,
                snapshot.policy.projects.guarantees(pool.name),
            )
            for pool in snapshot.policy.pools
        }

    async def forget(self, until: datetime) -> int:
        """Take away the reservations that were over before ``until``; return how many.

        Raises:
            GPULeaseError: the store cannot be used; then all stay.
        """
        async with self.lock:
            old = [each.id for each in self._known.values() if each.over < until][:AT_ONCE]
            if old:
                await self._ledger.call(self._ledger.store.write, drop, old)
            for each in old:
                del self._known[each]
            return len(old)

    async def _checked(
        self, wanted: Reservation, before: Reservation | None, others: Iterable[Reservation]
    ) -> Outcome:
        policy = self._policy()
        found = await expanded(wanted.calendar, policy.reservations.closures)
        whole = replace(wanted, occurrences=found.occurrences, closed=found.skipped)
        others, pools, now = list(others), self.firm(), self._snapshot().now
        await asyncio.to_thread(
            booking.check, whole, others, policy, pools=pools, now=now, before=before
        )
        return Outcome(whole, found, short=await self._short(whole, others, pools))

    async def _short(
        self, reservation: Reservation, others: Iterable[Reservation], pools: Mapping[str, Pool]
    ) -> Shortage | None:
        """Return what its first window to come lacks."""
        snapshot = self._snapshot()
        ahead = [w for w in booking.windows(snapshot.policy, reservation) if w.end > snapshot.now]
        if not ahead:
            return None
        people: Collection[str] = reservation.named
        if not people:
            try:
                people = await self._members(reservation.group)
            except HubUnreachableError as error:  # then nobody counts them
                log.warning("the members of %s are not known: %s", reservation.group, error)
        planned = snapshot.capacity_known and any(w.key == ahead[0].key for w in snapshot.windows)
        seats = effective(snapshot, ahead[0], snapshot.now) if planned else reservation.seats
        return shortage(
            ahead[0], seats, len(people), others,
            policy=snapshot.policy, pools=pools, now=snapshot.now,
        )  # fmt: skip

    async def save(
        self,
        before: Reservation | None,
        after: Reservation,
        who: str,
        what: str,
        note: str = "",
    ) -> None:
        """Write a reservation; ``lock`` is held."""
        event = ReservationEvent(after.id, self._snapshot().now, who, what, note)
        await self._ledger.call(self._ledger.store.save_reservation, before, after, event)
        self._known[after.id] = after
        self._listed = (None, [])
        self._changed()

    def _told_of(self, asker: Asker, after: Reservation, what: str, note: str = "") -> None:
        why = f": {note}" if note else ""
        sentence = f"{asker.name} {what} the reservation {after.name} of {after.group}{why}."
        self._tell(Notice(what, after.group, after.name, sentence, to=after.contact))

    def _allow(self, asker: Asker, group: str) -> None:
        if not self.may_reserve(asker, group):
            raise _may_not(group)

    def manageable(self, asker: Asker, reservation_id: str) -> Reservation:
        """Return a reservation that somebody may change.

        Raises:
            GPULeaseError: ``no_such_reservation`` (404), ``may_not_reserve`` (403).
        """
        found = self.visible(asker, reservation_id)
        if not self.may_manage(asker, found):
            raise _may_not(found.group)
        return found

    def _refuse_name(self, group: str, name: str) -> None:
        if self.named(group, name) is not None:
            raise GPULeaseError(
                "name_taken",
                f"{group} has a reservation {name!r} already.",
                next_step="Change that one, or choose another name.",
                status=409,
            )


def _may_not(group: str) -> GPULeaseError:
    return GPULeaseError(
        "may_not_reserve",
        f"You may not reserve GPUs for {group}.",
        next_step=f"Ask an admin to name you an instructor of {group}.",
        numbers={"group": group},
        status=403,
    )
