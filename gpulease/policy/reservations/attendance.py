"""Who came to which window of a reservation, and for how long a GPU was theirs and busy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpulease.policy.calendar import wall_clock, zone_of
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.model import Lease
from gpulease.terminal import csv_text

COLUMNS = ("window", "user", "came", "left", "leases", "held_seconds", "busy_seconds")


@dataclass(frozen=True)
class Attendance:
    """One person in one window; the times are ``None`` for a named person who did not come.

    ``busy``: seconds of the window in which the GPU worked, estimated by the leases' busy shares.
    """

    window: Window
    user: str
    came: datetime | None = None
    left: datetime | None = None
    leases: int = 0
    held: float = 0.0
    busy: float = 0.0


def attendance(
    windows: Iterable[Window], leases: Sequence[Lease], busy: Mapping[str, float], now: datetime
) -> list[Attendance]:
    """Return the rows of all windows that have begun, by window and person.

    Args:
        windows: of one reservation.
        leases: of its people, also ended ones.
        busy: the busy share, 0 to 1, of each lease.
        now: the present: what has not ended counts until then.
    """
    found = []
    for window in sorted(windows, key=lambda each: each.order):
        if window.start > now:
            break
        people = {user: Attendance(window, user) for user in window.of.named}
        for lease in sorted(leases, key=lambda each: (each.created, each.id)):
            if lease.gpu_class == window.of.gpu_class and window.entitles(lease.user, lease.groups):
                row = people.get(lease.user, Attendance(window, lease.user))
                people[lease.user] = _with(row, lease, busy.get(lease.id, 0.0), now)
        rows = (row for row in people.values() if row.leases or row.user in window.of.named)
        found += sorted(rows, key=lambda row: row.user)
    return found


def _with(row: Attendance, lease: Lease, busy: float, now: datetime) -> Attendance:
    """Add what a lease was in the window; one that was not there then adds nothing."""
    if lease.active_since is None:
        return row
    came = max(lease.active_since, row.window.start)
    left = min(lease.ended or now, row.window.end_for(lease.user))
    if left <= came:
        return row
    held = (left - came).total_seconds() * lease.count
    return Attendance(
        row.window,
        row.user,
        came=min(came, row.came or came),
        left=max(left, row.left or left),
        leases=row.leases + 1,
        held=row.held + held,
        busy=row.busy + held * busy,
    )


def as_csv(rows: Iterable[Attendance]) -> str:
    """Return the rows as CSV, with times as the wall shows them."""
    return csv_text(COLUMNS, map(_cells, rows))


def _cells(row: Attendance) -> list[object]:
    zone = zone_of(row.window.of.calendar.zone)
    start, came, left = (
        wall_clock(at, zone).isoformat(timespec="minutes") if at is not None else ""
        for at in (row.window.start, row.came, row.left)
    )
    return [start, row.user, came, left, row.leases, round(row.held), round(row.busy)]
