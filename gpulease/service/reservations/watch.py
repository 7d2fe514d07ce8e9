"""Looks after reservations that are made: what closures take away, and labs that will be short.

The people concerned are notified of everything once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.occurrences import Closure, Occurrence, expand
from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.model import PolicyDocument, Snapshot
from gpulease.policy.reservations import booking
from gpulease.policy.reservations.reports import (
    STEP,
    Shortage,
    expanded_anew,
    sentence_of,
    shortage,
    what_changed,
    without_class,
)
from gpulease.policy.reservations.seats import effective
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.hubs.api import HubUnreachableError
from gpulease.service.notices import Notice
from gpulease.service.reservations.commands import Reservations
from gpulease.service.workers import Workers
from gpulease.store.reservations import ReservationEvent, events, note
from gpulease.system.background import keep_polling

log = logging.getLogger(__name__)

#: Seconds between two looks.
WATCH = 30.0
_SHORT = "told_short"


@dataclass(eq=False)
class ReservationWatch:
    """What nobody asked for, and somebody has to know.

    Args:
        reservations: every one.
        ledger: reaches the store.
        policy: the document in force.
        snapshot: what is known now.
        tell: called with what the people of a reservation have to know.
        workers: where calendars are expanded.
    """

    reservations: Reservations
    ledger: Ledger
    policy: Callable[[], PolicyDocument]
    snapshot: Callable[[], Snapshot]
    _: KW_ONLY
    tell: Callable[[Notice], None]
    workers: Workers

    def __post_init__(self) -> None:
        self._told: set[str] = set()
        self._short: list[Shortage] = []
        self._classless: list[Reservation] = []
        self._expanded_with: tuple[Closure, ...] | None = None

    async def load(self) -> None:
        """Read what was told already."""
        told = await self.ledger.read(events, None, _SHORT)
        self._told = {event.note for event in told}

    async def watch(self, every: float = WATCH) -> None:
        """Look until cancelled."""
        await keep_polling(
            self._both,
            every=every,
            log=log,
            failed="reservations are not watched",
            away=(HubUnreachableError,),
        )

    async def _both(self) -> None:
        await self.expand_again()
        await self.look()

    def short(self) -> list[Shortage]:
        """Return the windows within a day that have fewer seats than reserved."""
        snapshot = self.snapshot()
        if not snapshot.capacity_known:
            return []
        others, pools = self.reservations.all(), self.reservations.checks.firm()
        found = [
            shortage(
                window, effective(snapshot, window, snapshot.now), 0, others,
                policy=snapshot.policy, pools=pools, now=snapshot.now,
            )
            for window in snapshot.windows
            if snapshot.now < window.end
        ]  # fmt: skip
        return [each for each in found if each is not None]

    def alerts(self) -> list[str]:
        """Return what an admin should know, as it was at the last look."""
        return [each.sentence for each in self._short] + [sentence_of(x) for x in self._classless]

    async def look(self) -> None:
        """Tell of the labs that will be short: when that is seen, and once more at their lead.

        Whenever it gets worse than was told, that is told, too.
        """
        every, snapshot = self.reservations.all(), self.snapshot()
        there = {each.id for each in every}
        self._told = {key for key in self._told if key.partition("@")[0] in there}
        self._classless = list(without_class(every, snapshot.policy, snapshot.now))
        for each in self._classless:
            await self._tell_once(
                each.id,
                f"{each.id}@{each.gpu_class}",
                Notice("short", each.group, each.name, sentence_of(each), STEP, each.contact),
            )
        self._short = self.short()
        for found in self._short:
            now, window = self.snapshot().now, found.window
            phase = window.key if now < window.hold_from else f"{window.key}/lead"
            if found.seats >= self._least(phase):
                continue
            key, of = f"{phase}/{found.seats}", window.of
            notice = Notice("short", of.group, of.name, found.sentence, found.next_step, of.contact)
            await self._tell_once(of.id, key, notice)

    def _least(self, phase: str) -> float:
        """Return the fewest seats that were told of a window in this phase of it."""
        told = (key.removeprefix(f"{phase}/") for key in self._told)
        return min((int(seats) for seats in told if seats.isdecimal()), default=math.inf)

    async def _tell_once(self, reservation_id: str, key: str, notice: Notice) -> None:
        if key in self._told:
            return
        now = self.snapshot().now
        event = ReservationEvent(reservation_id, now, "gpulease", _SHORT, key)
        await self.ledger.write(note, event)
        self._told.add(key)
        self.tell(notice)

    async def expand_again(self) -> None:
        """Expand every reservation anew where closures changed, and once after a start: the zone
        database may be another.  Windows that have begun stay; people are notified of changes.
        """
        closures = self.policy().reservations.closures
        if closures == self._expanded_with:
            return
        async with self.reservations.lock:
            for before in self.reservations.all():
                await self._expand_again(before, closures)
        self._expanded_with = closures

    async def _expand_again(self, before: Reservation, closures: tuple[Closure, ...]) -> None:
        try:
            # It was worked out in time when it was made, so this ends.
            found = await self.workers.thread(
                "", expand, before.calendar, closures,
                made=before.created, now=self.snapshot().now,
            )  # fmt: skip
        except GPULeaseError as error:  # it stays as it is
            log.warning("%s cannot be expanded again: %s", before.name, error.sentence)
            return
        policy, pools = self.policy(), self.reservations.checks.firm()
        others = self.reservations.all()

        def fits(one: Occurrence) -> bool:
            return booking.fits_beside(before, one, others, policy, pools)

        after = expanded_anew(before, found, self.snapshot().now, fits)
        if after is before:
            return
        sentence = what_changed(before, after)
        await self.reservations.save(before, after, "gpulease", "expanded", sentence)
        self.tell(Notice("changed", after.group, after.name, sentence, to=after.contact))
