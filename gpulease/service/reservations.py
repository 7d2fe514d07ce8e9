"""The reservations of the site: who may make and change them, and the windows that count now.

Owns the order "checked, stored, then true", one change at a time.  Refuses to decide what fits
(``policy.reservations``) and to know HTTP.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar import (
    Closure,
    Expanded,
    Occurrence,
    expand,
    wall_clock,
    zone_of,
)
from gpulease.policy.calendar.reservation import Reservation, Window
from gpulease.policy.capacity.devices import in_service
from gpulease.policy.model import PolicyDocument, Snapshot
from gpulease.policy.reservations import booking
from gpulease.policy.reservations.anew import expanded_anew, what_changed
from gpulease.policy.reservations.feasibility import Pool
from gpulease.policy.reservations.seats import effective
from gpulease.service.auth import Asker
from gpulease.service.expansion import expanded
from gpulease.service.ledger import Ledger
from gpulease.service.notify import Notice
from gpulease.service.reservation_bodies import ChangeBody, ReservationBody, changed, made
from gpulease.store.reservations import ReservationEvent, drop, events, note

log = logging.getLogger(__name__)

#: Seconds between two looks whether a lab will be short.
WATCH = 30.0
_SHORT = "told_short"
#: Reservations that are taken away in one transaction.
AT_ONCE = 50
#: The planner sees windows whose hold begins within this time.
AHEAD = timedelta(days=1)


@dataclass(frozen=True)
class Outcome:
    """A reservation as it is or would be, with what its calendar gave; ``problem``: why not."""

    reservation: Reservation
    expanded: Expanded
    problem: GPULeaseError | None = None


class Reservations:
    """Every reservation, in memory and in the store.

    Args:
        ledger: reaches the store.
        policy: the document in force.
        snapshot: what is known now.
        changed: called after a change, so that a plan is made.
        tell: called with what the people of a reservation have to know.
    """

    def __init__(
        self,
        ledger: Ledger,
        policy: Callable[[], PolicyDocument],
        snapshot: Callable[[], Snapshot],
        changed: Callable[[], None],
        tell: Callable[[Notice], None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._snapshot = snapshot
        self._changed = changed
        self._tell = tell
        self._told: set[str] = set()
        self._lock = asyncio.Lock()
        self._known: dict[str, Reservation] = {}
        self._listed: tuple[PolicyDocument | None, list[Window]] = (None, [])
        self._expanded_with: tuple[Closure, ...] | None = None

    async def load(self) -> None:
        """Read what is stored."""
        for each in await self._ledger.call(self._ledger.store.reservations):
            self._known[each.id] = each
        told = await self._ledger.call(self._ledger.store.read, events, None, _SHORT)
        self._told = {event.note for event in told}

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
        return self.may_manage(asker, reservation) or (asker.kind == "user" and own)

    def may_manage(self, asker: Asker, reservation: Reservation) -> bool:
        """Tell whether somebody may change a reservation."""
        manager = asker.kind == "user" and asker.name in reservation.managers
        return manager or self.may_reserve(asker, reservation.group)

    def may_reserve(self, asker: Asker, group: str) -> bool:
        """Tell whether somebody may reserve for a group: its instructors, managers and admins."""
        managed = self._policy().reservations.managed_by(asker.name)
        manager = asker.kind == "user" and group in managed
        return asker.admin or asker.leads_all or group in asker.leads or manager

    async def book(
        self, asker: Asker, body: ReservationBody, key: str = ""
    ) -> tuple[Outcome, bool]:
        """Make a reservation; with the same key a repeated one is the same.

        Raises:
            GPULeaseError: ``may_not_reserve`` (403), ``name_taken`` (409), ``bad_calendar``,
                ``reservation_refused`` (422), ``reservation_conflict`` (409).
        """
        self._allow(asker, body.group)
        async with self._lock:
            reservation_id = _id_of(asker, key)
            known = self._known.get(reservation_id)
            if known is not None:
                return Outcome(known, Expanded(known.occurrences)), False
            self._refuse_name(body.group, body.name)
            wanted = made(body, reservation_id, asker.name, self._snapshot().now)
            outcome = await self._checked(wanted, None, self.all())
            await self._save(None, outcome.reservation, asker, "booked")
            return outcome, True

    async def change(self, asker: Asker, reservation_id: str, body: ChangeBody) -> Outcome:
        """Change a reservation.

        Raises:
            GPULeaseError: those of ``book``, ``no_such_reservation``, ``reservation_changed``.
        """
        async with self._lock:
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
            await self._save(before, after, asker, "changed")
            return replace(outcome, reservation=after)

    async def cancel(self, asker: Asker, reservation_id: str, note: str = "") -> Reservation:
        """Cancel a reservation; a repeat changes nothing.

        Raises:
            GPULeaseError: ``no_such_reservation``, ``may_not_reserve``.
        """
        async with self._lock:
            before = self.manageable(asker, reservation_id)
            if before.cancelled:
                return before
            after = replace(before, cancelled=True, version=before.version + 1)
            await self._save(before, after, asker, "cancelled", note)
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
                len(there.get(pool.name, ())),
                pool.spare,
                snapshot.policy.projects.guarantees(pool.name),
            )
            for pool in snapshot.policy.pools
        }

    def short(self) -> list[tuple[Window, int]]:
        """Return the windows within a day that have fewer seats than reserved, and how many."""
        snapshot = self._snapshot()
        if not snapshot.capacity_known:
            return []
        found = [(w, effective(snapshot, w, snapshot.now)) for w in snapshot.windows]
        return [(w, seats) for w, seats in found if seats < w.of.seats and snapshot.now < w.end]

    def alerts(self) -> list[str]:
        """Return what an admin should know."""
        return [_short(window, seats).sentence for window, seats in self.short()]

    async def watch(self, every: float = WATCH) -> None:
        """Tell the people of each lab that will be short, once; run until cancelled."""
        while True:
            try:
                await self.expand_again()
                await self.look()
            except GPULeaseError as error:
                log.warning("reservations are not watched: %s", error.sentence)
            await asyncio.sleep(every)

    async def expand_again(self) -> None:
        """Expand every reservation anew where closures changed, and once after a start: the zone
        database may be another.  Windows that have begun stay; people are told what changed.
        """
        closures = self._policy().reservations.closures
        if closures == self._expanded_with:
            return
        async with self._lock:
            for before in self.all():
                await self._expand_again(before, closures)
        self._expanded_with = closures

    async def _expand_again(self, before: Reservation, closures: tuple[Closure, ...]) -> None:
        try:
            # It was worked out in time when it was made, so this ends.
            found = await asyncio.to_thread(expand, before.calendar, closures)
        except GPULeaseError as error:  # it stays as it is
            log.warning("%s cannot be expanded again: %s", before.name, error.sentence)
            return
        policy, pools, others = self._policy(), self.firm(), self.all()

        def fits(one: Occurrence) -> bool:
            return booking.fits_beside(before, one, others, policy, pools)

        after = expanded_anew(before, found, self._snapshot().now, fits)
        if after is not before:
            await self._save(before, after, None, "expanded", what_changed(before, after))

    async def look(self) -> None:
        """Tell of the labs that are short now and were not told of."""
        for window, seats in self.short():
            if window.key in self._told:
                continue
            now = self._snapshot().now
            event = ReservationEvent(window.of.id, now, "gpulease", _SHORT, window.key)
            await self._ledger.call(self._ledger.store.write, note, event)
            self._told.add(window.key)
            self._tell(_short(window, seats))

    async def forget(self, until: datetime) -> int:
        """Take away the reservations that were over before ``until``; return how many.

        Raises:
            GPULeaseError: the store cannot be used; then all stay.
        """
        async with self._lock:
            old = [each.id for each in self._known.values() if each.over < until][:AT_ONCE]
            if old:
                await self._ledger.call(self._ledger.store.write, drop, old)
            for each in old:
                del self._known[each]
                self._told = {key for key in self._told if not key.startswith(f"{each}@")}
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
        return Outcome(whole, found)

    async def _save(
        self,
        before: Reservation | None,
        after: Reservation,
        asker: Asker | None,
        what: str,
        note: str = "",
    ) -> None:
        who = asker.name if asker is not None else "gpulease"
        event = ReservationEvent(after.id, self._snapshot().now, who, what, note)
        await self._ledger.call(self._ledger.store.save_reservation, before, after, event)
        self._known[after.id] = after
        self._listed = (None, [])
        self._changed()
        if asker is None:
            self._tell(Notice("changed", after.group, after.name, note, to=after.contact))
        elif what != "booked":
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


def _short(window: Window, seats: int) -> Notice:
    zone, of = zone_of(window.of.calendar.zone), window.of
    start = wall_clock(window.start, zone)
    return Notice(
        "short",
        of.group,
        of.name,
        f"{of.name} of {of.group} on {start:%a %d %b %Y %H:%M} has {seats} of {of.seats} x "
        f"{of.gpu_class}: GPUs are out of service.",
        "Take another class or split the session; `reservations/check` says what fits.",
        of.contact,
    )


def _may_not(group: str) -> GPULeaseError:
    return GPULeaseError(
        "may_not_reserve",
        f"You may not reserve GPUs for {group}.",
        next_step=f"Ask an admin to name you an instructor of {group}.",
        numbers={"group": group},
        status=403,
    )


def _id_of(asker: Asker, key: str) -> str:
    """Return a new name; the same key of the same person makes the same one."""
    if not key:
        return secrets.token_hex(8)
    return hashlib.sha256(f"{asker.kind}/{asker.name}/{key}".encode()).hexdigest()[:16]
