"""REST of reservations: list, make, show, change, cancel, check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar import ics
from gpulease.policy.calendar.ics_read import MAX_TEXT
from gpulease.policy.reservations import booking
from gpulease.policy.reservations.reports import as_csv
from gpulease.service.hubs.auth import SCOPE_RESERVE
from gpulease.service.reservations.checks import Checked
from gpulease.service.reservations.expansion import calendar_read
from gpulease.service.reservations.views import (
    LISTED,
    ClosureView,
    ReservationsBrought,
    ReservationsChecked,
    ReservationView,
    reservation_view,
)
from gpulease.service.rest.base import ACCESS, BaseHandler, Text, answers, needs_scope
from gpulease.service.schemas.bodies import EndBody, GroupQuery, ReservationsQuery, is_set
from gpulease.service.schemas.reservation_bodies import (
    ApplyBody,
    CalendarBody,
    ChangeBody,
    CheckBody,
    ReservationBody,
)
from gpulease.service.schemas.shapes import Items, Page

_BODY_MAX = 512 * 1024


class _Handler(BaseHandler):
    body_max = _BODY_MAX

    def view(self, outcome: Checked) -> ReservationView:
        """Return one reservation with all of its windows."""
        return reservation_view(
            outcome.reservation,
            self.services.loop.snapshot(),
            reader=self.asker,
            manages=self.services.reservations.rights.may_manage(self.asker, outcome.reservation),
            expanded=outcome.expanded,
            short=outcome.short,
            notes=outcome.notes,
        )

    def checked(self, found: Sequence[Checked]) -> dict[str, Any]:
        """Return of each whether it fits."""
        items = [
            {
                "fits": each.problem is None,
                "problem": each.problem.to_problem() if each.problem is not None else None,
                "reservation": self.view(each),
            }
            for each in found
        ]
        return {"fits": all(each["fits"] for each in items), "items": items}


class ReservationList(_Handler):
    """``reservations``: list what one may see, make one."""

    @needs_scope(ACCESS)
    @answers({200: Page[ReservationView]}, query=ReservationsQuery)
    async def get(self) -> None:
        """List reservations, soonest first, with their next sessions or all ``since``.

        ``since`` shows every window that ends after it instead of the next five.
        """
        query = self.query(ReservationsQuery)
        found = self.services.reservations.seen_by(
            self.asker, group=query.group, cancelled=is_set(query.cancelled)
        )
        snapshot = self.services.loop.snapshot()
        rights = self.services.reservations.rights

        def views() -> list[ReservationView]:
            return [
                reservation_view(
                    each,
                    snapshot,
                    reader=self.asker,
                    manages=rights.may_manage(self.asker, each),
                    windows=LISTED,
                    since=query.since,
                )
                for each in found[query.offset : query.offset + query.limit]
            ]

        items = await self.services.workers.thread(self.asker.name, views)
        self.answer_page(items, len(found), query)

    @needs_scope(SCOPE_RESERVE)
    @answers(
        {201: ReservationView, 200: ReservationView},
        body=ReservationBody,
        refuses=(409,),
        repeatable=True,
    )
    async def post(self) -> None:
        """Reserve GPUs: 201 with all sessions, 200 where the same key made it before."""
        body = self.parse(ReservationBody)
        key = self.repeat_key()
        outcome, new = await self.services.reservations.book(self.asker, body, key)
        address = f"{self.services.prefix}api/reservations/{outcome.reservation.id}"
        if new:
            self.set_header("Location", address)
        self.answer(self.view(outcome), 201 if new else 200)


class ReservationCalendar(_Handler):
    """``reservations.ics``: what one may see, for a calendar program, and from one."""

    body_max = 2 * MAX_TEXT

    @needs_scope(ACCESS)
    @answers({200: Text("text/calendar")}, query=GroupQuery)
    async def get(self) -> None:
        """Return the reservations you may see as an iCalendar."""
        group = self.query(GroupQuery).group
        found = self.services.reservations.seen_by(self.asker, group=group)
        text = await self.services.workers.thread(self.asker.name, ics.to_ics, found)
        self.set_header("Content-Type", "text/calendar; charset=utf-8")
        self.finish(text)

    @needs_scope(SCOPE_RESERVE)
    @answers({200: ReservationsBrought}, body=CalendarBody, refuses=(409,))
    async def post(self) -> None:
        """Reserve the events of an iCalendar, all or none; a dry run by default.

        One of a name that the group has already is changed.
        """
        body, services = self.parse(CalendarBody), self.services
        now = services.loop.snapshot().now
        read = await self.unless_gone(
            calendar_read(services.workers, self.asker.name, body.calendar, now, body.zone)
        )
        found, done = await services.reservations.bring(
            self.asker, body.reservations(read), dry_run=body.dry_run
        )
        self.answer({"done": done, "left_out": read.left_out, **self.checked(found)})


class ReservationAttendance(BaseHandler):
    """``reservations/{id}/attendance.csv``: who came, for those who manage it."""

    @needs_scope(ACCESS)
    @answers({200: Text("text/csv")})
    async def get(self, reservation_id: str) -> None:
        """Show who came to each session, when, and for how long their GPU was busy."""
        snapshot = self.services.loop.snapshot()
        found = self.services.reservations.manageable(self.asker, reservation_id)
        windows = booking.windows(snapshot.policy, found)
        rows = await self.services.history.attendance(windows, snapshot.now)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.finish(as_csv(rows))


class ReservationCheck(_Handler):
    """``reservations/check``: what would be, and nothing done."""

    @needs_scope(SCOPE_RESERVE)
    @answers({200: ReservationsChecked}, body=CheckBody, refuses=(409,))
    async def post(self) -> None:
        """Say of each reservation whether it fits, its sessions, and what is in its way."""
        bodies = self.parse(CheckBody).reservations
        found = await self.unless_gone(self.services.reservations.check(self.asker, bodies))
        self.answer(self.checked(found))


class ReservationApply(_Handler):
    """``reservations/apply``: a timetable as a whole."""

    @needs_scope(SCOPE_RESERVE)
    @answers({200: ReservationsBrought}, body=ApplyBody, refuses=(404, 409))
    async def post(self) -> None:
        """Create, change and cancel reservations, all or nothing; a dry run by default.

        One of a name that the group has already is changed.
        """
        body = self.parse(ApplyBody)
        found, done = await self.services.reservations.bring(
            self.asker, body.reservations, dry_run=body.dry_run, cancel=body.cancel
        )
        self.answer({"done": done, "left_out": [], **self.checked(found)})


class ClosureList(BaseHandler):
    """``closures``: when nothing is open."""

    @needs_scope(ACCESS)
    @answers({200: Items[ClosureView]})
    async def get(self) -> None:
        """List the days that reservations leave out."""
        closures = self.services.policies.current.reservations.closures
        items = [
            {"first": each.first.isoformat(), "last": each.last.isoformat(), "title": each.title}
            for each in sorted(closures, key=lambda each: each.first)
        ]
        self.answer({"items": items})


class OneReservation(_Handler):
    """``reservations/{id}``: show, change, cancel."""

    async def admit(self) -> None:
        """Find out who asks, and who may change it before their body is taken.

        Raises:
            GPULeaseError: as for every request, ``no_such_reservation``, ``may_not_reserve``.
        """
        await super().admit()
        if self.request.method in {"PATCH", "DELETE"}:
            self.services.reservations.manageable(self.asker, self.path_args[0])

    @needs_scope(ACCESS)
    @answers({200: ReservationView})
    async def get(self, reservation_id: str) -> None:
        """Show one with all sessions that are not over."""
        found = self.services.reservations.visible(self.asker, reservation_id)
        manages = self.services.reservations.rights.may_manage(self.asker, found)
        snapshot = self.services.loop.snapshot()
        self.answer(reservation_view(found, snapshot, reader=self.asker, manages=manages))

    @needs_scope(ACCESS)
    @answers({200: ReservationView}, body=ChangeBody, refuses=(409,))
    async def patch(self, reservation_id: str) -> None:
        """Change what is named; what is not named stays.

        Raises:
            GPULeaseError: ``invalid_body`` for a body that names nothing.
        """
        body = self.parse(ChangeBody)
        if not body.model_fields_set - {"base_version"}:
            raise GPULeaseError("invalid_body", "Nothing is to be changed.")
        reservations = self.services.reservations
        outcome = await reservations.change(self.asker, reservation_id, body)
        self.answer(self.view(outcome))

    @needs_scope(ACCESS)
    @answers({200: ReservationView}, body=EndBody, refuses=(409,))
    async def delete(self, reservation_id: str) -> None:
        """Cancel it; a repeat changes nothing."""
        note = self.parse(EndBody).note
        found = await self.services.reservations.cancel(self.asker, reservation_id, note)
        snapshot = self.services.loop.snapshot()
        self.answer(reservation_view(found, snapshot, reader=self.asker, manages=True))
