"""The reservations of the site: how they come and change, and the windows that count now.

The order is "checked, stored, then true", one change at a time.  What a person's input sizes is
worked out before the others have to wait.  What fits is decided in ``policy.reservations``, who may
in ``reservations.views``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.occurrences import Expanded
from gpulease.policy.calendar.reservation import Reservation, Window
from gpulease.policy.model import PolicyDocument, Snapshot
from gpulease.policy.reservations import booking
from gpulease.policy.reservations.reports import changes_of
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.hubs.auth import Asker
from gpulease.service.notices import Notice
from gpulease.service.reservations.checks import Checked, Checks, Known
from gpulease.service.reservations.views import Rights, may_not
from gpulease.service.schemas.reservation_bodies import (
    OF_KEY,
    ChangeBody,
    ReservationBody,
    changed,
    id_of,
    made,
)
from gpulease.service.workers import Workers
from gpulease.store import key_reused
from gpulease.store import reservations as stored
from gpulease.store.reservations import ReservationEvent, drop
from gpulease.texts import Text, joined

#: Reservations that are taken away in one transaction.
AT_ONCE = 50
#: The planner sees windows whose hold begins within this time.
AHEAD = timedelta(days=1)


class Reservations:
    """Every reservation, in memory and in the store.

    Args:
        ledger: reaches the store.
        policy: the document in force.
        snapshot: what is known now.
        changed: called after a change, so that a plan is made.
        tell: called with what the people of a reservation have to know.
        members: gives the names of a group's members.
        workers: where what people wrote is worked out.
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
        workers: Workers,
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._snapshot = snapshot
        self._changed = changed
        self._tell = tell
        self.checks = Checks(policy, snapshot, members, workers)
        self.rights = Rights(policy)
        self.lock = asyncio.Lock()
        self._known: dict[str, Reservation] = {}
        self._listed: tuple[PolicyDocument | None, list[Window]] = (None, [])

    async def load(self) -> None:
        """Read what is stored."""
        for each in await self._ledger.read(stored.read):
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
            and self.rights.may_see(asker, each)
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
        if found is None or not self.rights.may_see(asker, found):
            raise GPULeaseError(
                "no_such_reservation",
                "There is no such reservation, or it is not yours to see.",
                next_step="Look at the list of reservations.",
            )
        return found

    async def book(
        self, asker: Asker, body: ReservationBody, key: str = ""
    ) -> tuple[Checked, bool]:
        """Make a reservation; with the same key a repeated one is the same.

        Raises:
            GPULeaseError: ``may_not_reserve`` (403), ``name_taken`` (409), ``bad_calendar``,
                ``reservation_refused`` (422), ``reservation_conflict`` (409), ``key_reused`` (422).
        """
        self.rights.allow(asker, body)
        blank = made(body, "", asker.name, self._snapshot().now)
        known = await self.checks.known(asker.name, [blank])
        async with self.lock:
            reservation_id = id_of(asker.name, key, body)
            for each in self._known.values() if key else ():
                if each.id[:OF_KEY] != reservation_id[:OF_KEY]:
                    continue
                if each.id != reservation_id:
                    raise key_reused()
                return Checked(each, Expanded(each.occurrences)), False
            self._refuse_name(body.group, body.name)
            wanted = made(body, reservation_id, asker.name, self._snapshot().now)
            outcome = await self.checks.checked(wanted, None, self.all(), known)
            await self.save(None, outcome.reservation, asker.name, "booked")
            return outcome, True

    async def change(self, asker: Asker, reservation_id: str, body: ChangeBody) -> Checked:
        """Change a reservation.

        Raises:
            GPULeaseError: those of ``book``, ``no_such_reservation``, ``reservation_changed``.
        """
        before, now = self.manageable(asker, reservation_id), self._snapshot().now
        self.rights.keep_to_their_hub(asker, body, before)
        known = await self.checks.known(asker.name, [changed(before, body, now)])
        async with self.lock:
            before = self.manageable(asker, reservation_id)
            return await self._change(asker, before, body, now, known)

    async def _change(
        self, asker: Asker, before: Reservation, body: ChangeBody, now: datetime, known: Known
    ) -> Checked:
        if body.base_version not in (None, before.version):
            raise GPULeaseError(
                "reservation_changed",
                f"It is at version {before.version} now; you changed {body.base_version}.",
                next_step="Load it, make your change again and save.",
                numbers={"version": before.version},
            )
        self.rights.keep_to_their_hub(asker, body, before)
        wanted = changed(before, body, now)
        outcome = await self.checks.checked(wanted, before, self.all(), known)
        return await self._changed_to(asker, before, outcome)

    async def _changed_to(self, asker: Asker, before: Reservation, outcome: Checked) -> Checked:
        after = replace(outcome.reservation, version=before.version + 1)
        what = changes_of(before, after, self._snapshot().now)
        await self.save(before, after, asker.name, "changed", what)
        self._told_of(asker, after, "changed", what)
        return replace(outcome, reservation=after)

    async def cancel(self, asker: Asker, reservation_id: str, note: str = "") -> Reservation:
        """Cancel a reservation; a repeat changes nothing.

        Raises:
            GPULeaseError: ``no_such_reservation``, ``may_not_reserve``.
        """
        async with self.lock:
            return await self._cancel(asker, self.manageable(asker, reservation_id), note)

    async def _cancel(self, asker: Asker, before: Reservation, note: str) -> Reservation:
        if before.cancelled:
            return before
        after = replace(before, cancelled=True, version=before.version + 1)
        await self.save(before, after, asker.name, "cancelled", note)
        self._told_of(asker, after, "cancelled", note)
        return after

    async def check(
        self,
        asker: Asker,
        bodies: Sequence[ReservationBody],
        gone: Collection[Reservation] = (),
        known: Known | None = None,
    ) -> list[Checked]:
        """Say of several reservations whether they would fit, one after the other; nothing is done.

        Args:
            asker: who would make or change them.
            bodies: what they would be.
            gone: what would be cancelled before.
            known: what ``known`` gave for them.

        Raises:
            GPULeaseError: ``may_not_reserve``, and ``bad_calendar`` of what cannot be read.
        """
        known = known or await self.known(asker, bodies)
        there = [each for each in self.all() if each not in gone]
        found = await self._one_by_one(asker, bodies, there, {}, known)
        moving = {x.id: x for each in bodies if (x := self.named(each.group, each.name))}
        if len(moving) < 2 or all(each.problem is None for each in found):
            return found
        # Labs that change places are in each other's way, one after the other.
        together = await self._one_by_one(asker, bodies, there, moving, known)
        after = [each.reservation for each in together]
        rest = [each for each in there if each.id not in moving]
        fits = all(each.problem is None for each in together) and all(
            [await self.checks.fits(each, [*rest, *after], known) for each in after]
        )
        return together if fits else found

    async def _one_by_one(
        self,
        asker: Asker,
        bodies: Sequence[ReservationBody],
        there: Sequence[Reservation],
        moving: Collection[str],
        known: Known,
    ) -> list[Checked]:
        """Check each beside those before it, and beside those that are there and not ``moving``."""
        found, there = [], [each for each in there if each.id not in moving]
        for number, body in enumerate(bodies):
            with _named(body, bodies):
                outcome = await self._check(asker, body, f"check-{number}", there, known)
            if outcome.problem is None:
                rest = [each for each in there if each.id != outcome.reservation.id]
                there = [*rest, outcome.reservation]
            found.append(outcome)
        return found

    async def known(self, asker: Asker, bodies: Sequence[ReservationBody]) -> Known:
        """Expand the calendars of what somebody may reserve.

        Raises:
            GPULeaseError: ``may_not_reserve``, and ``bad_calendar`` of what cannot be read.
        """
        _refuse_twice(bodies)
        wanted = []
        for body in bodies:
            with _named(body, bodies):
                wanted.append(self._wanted(asker, body, "")[0])
        return await self.checks.known(asker.name, wanted)

    def _wanted(
        self, asker: Asker, body: ReservationBody, new_id: str
    ) -> tuple[Reservation, Reservation | None]:
        """Return what a body makes, and the reservation of its name that is there."""
        before, now = self.named(body.group, body.name), self._snapshot().now
        self.rights.allow(asker, body, before)
        if before is None:
            return made(body, new_id, asker.name, now), None
        return changed(before, body, now), before

    async def _check(
        self,
        asker: Asker,
        body: ReservationBody,
        new_id: str,
        there: Sequence[Reservation],
        known: Known,
    ) -> Checked:
        wanted, before = self._wanted(asker, body, new_id)
        try:
            return await self.checks.checked(wanted, before, there, known)
        except GPULeaseError as error:
            occurrences = await self.checks.expanded(wanted, known)
            return Checked(replace(wanted, closed=occurrences.skipped), occurrences, error)

    async def bring(
        self,
        asker: Asker,
        bodies: Sequence[ReservationBody],
        *,
        dry_run: bool,
        cancel: Sequence[str] = (),
    ) -> tuple[list[Checked], bool]:
        """Make or change several reservations, all of them or none; return whether it was done.

        ``cancel``: the ids of those that are cancelled first.

        Raises:
            GPULeaseError: those of ``check``, ``no_such_reservation``, and of the store.
        """
        for reservation_id in cancel:
            self.manageable(asker, reservation_id)
        known = await self.known(asker, bodies) if bodies else None
        async with self.lock:
            gone = [self.manageable(asker, each) for each in cancel]
            found = await self.check(asker, bodies, gone, known) if bodies else []
            if dry_run or any(each.problem is not None for each in found):
                return found, False
            for each in gone:
                await self._cancel(asker, each, "not in the file")
            pairs = zip(bodies, found, strict=True)
            return [await self._brought(asker, body, each) for body, each in pairs], True

    async def _brought(self, asker: Asker, body: ReservationBody, found: Checked) -> Checked:
        """Keep what was just checked; nothing else has changed since, for the lock is held."""
        before = self.named(body.group, body.name)
        if before is None:
            after = replace(found.reservation, id=id_of(asker.name, "", body))
            await self.save(None, after, asker.name, "booked")
            return replace(found, reservation=after)
        if changed(before, body, self._snapshot().now) == before:
            return replace(found, reservation=before)
        return await self._changed_to(asker, before, found)

    def named(self, group: str, name: str) -> Reservation | None:
        """Return a group's reservation of a name that is not cancelled."""
        mine = (each for each in self.all() if (each.group, each.name) == (group, name))
        return next(mine, None)

    async def forget(self, until: datetime) -> int:
        """Take away the reservations that were over before ``until``; return how many.

        Raises:
            GPULeaseError: the store cannot be used; then all stay.
        """
        async with self.lock:
            old = [each.id for each in self._known.values() if each.over < until][:AT_ONCE]
            if old:
                await self._ledger.write(drop, old)
            for each in old:
                del self._known[each]
            return len(old)

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
        await self._ledger.write(stored.save, before, after, event)
        self._known[after.id] = after
        self._listed = (None, [])
        self._changed()

    def _told_of(self, asker: Asker, after: Reservation, what: str, note: str = "") -> None:
        why = f": {note}" if note else ""
        sentence = f"{asker.name} {what} the reservation {after.name} of {after.group}{why}."
        self._tell(Notice(what, after.group, after.name, sentence, to=after.contact))

    def manageable(self, asker: Asker, reservation_id: str) -> Reservation:
        """Return a reservation that somebody may change.

        Raises:
            GPULeaseError: ``no_such_reservation`` (404), ``may_not_reserve`` (403).
        """
        found = self.visible(asker, reservation_id)
        if not self.rights.may_manage(asker, found):
            raise may_not(found.group)
        return found

    def _refuse_name(self, group: str, name: str) -> None:
        if self.named(group, name) is not None:
            raise GPULeaseError(
                "name_taken",
                f"{group} has a reservation {name!r} already.",
                next_step="Change that one, or choose another name.",
            )


def _refuse_twice(bodies: Sequence[ReservationBody]) -> None:
    """Refuse two reservations of one name: the second would be a change of the first."""
    names = Counter((body.group, body.name) for body in bodies)
    (group, name), times = names.most_common(1)[0]
    if times > 1:
        raise GPULeaseError(
            "name_taken",
            Text(
                "{n} reservations of {group} are called '{name}'.", n=times, group=group, name=name
            ),
            next_step=Text("Give each a name of its own."),
        )


@contextmanager
def _named(body: ReservationBody, bodies: Sequence[ReservationBody]) -> Iterator[None]:
    """Say of several reservations which one is refused."""
    try:
        yield
    except GPULeaseError as error:
        if len(bodies) == 1:
            raise
        raise GPULeaseError(
            error.reason,
            joined(f"{body.name}:", error.sentence),
            next_step=error.next_step,
            numbers=error.numbers,
            status=error.status,
        ) from None
