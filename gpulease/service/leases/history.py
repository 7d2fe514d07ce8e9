"""Leases that are no longer in memory, what happened to each, and the use of GPUs over time.

Who may read which part of the store's history is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.model import Device, Lease, LeaseState
from gpulease.policy.reservations.reports import Attendance, attendance
from gpulease.service.control_loop.deciding import event_view
from gpulease.service.control_loop.evidence import busy_share
from gpulease.service.control_loop.incidents import note_for
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.hubs.auth import Asker
from gpulease.service.leases.commands import LeaseCommands
from gpulease.service.schemas.shapes import DeviceUse, LeaseEvent, TimelineStep
from gpulease.store import history, usage
from gpulease.store.history import EVERY, Of
from gpulease.store.usage import HeldTime, Used, Waited

#: Who was asked for so long before a window may still have been in it.
_LONGEST_LEASE = timedelta(days=7)


class History:
    """Pages of leases, for those who may see them."""

    def __init__(self, ledger: Ledger, commands: LeaseCommands) -> None:
        self._ledger = ledger
        self._commands = commands

    async def page(
        self, asker: Asker, *, state: str, mine: bool, of: Of = EVERY, offset: int, limit: int
    ) -> tuple[list[Lease], int]:
        """Return leases newest first, and how many there are altogether."""
        everybody = not mine and (asker.admin or asker.leads_all)
        if state == "live":  # all of them are in memory, and every page and notebook asks
            found = [x for x in self._live(asker, everybody=everybody, mine=mine) if of.has(x)]
            found.sort(key=lambda lease: (lease.created, lease.id), reverse=True)
            return found[offset : offset + limit], len(found)
        return await self._ledger.read(
            history.page,
            users=None if everybody else [asker.name],
            groups=None if everybody else [] if mine else list(asker.leads),
            states=_states(state),
            of=of,
            offset=offset,
            limit=limit,
        )

    def _live(self, asker: Asker, *, everybody: bool, mine: bool) -> list[Lease]:
        if everybody:
            return list(self._ledger.live())
        if mine or not asker.leads:
            return list(self._ledger.live_of(asker.name))
        return [x for x in self._ledger.live() if asker.may_see(x.user, x.groups)]

    async def busy_shares(self, leases: Sequence[Lease]) -> dict[str, float | None]:
        """Return the busy share, 0 to 1, of those leases that are not in memory any more."""
        old = [lease.id for lease in leases if lease.id not in self._ledger.leases]
        if not old:
            return {}
        found = await self._ledger.read(history.busy_seconds, old)
        return {lease_id: busy_share(*found.get(lease_id, (0.0, 0.0))) for lease_id in old}

    async def attendance(self, windows: Sequence[Window], now: datetime) -> list[Attendance]:
        """Return who came to these windows of one reservation that have begun."""
        begun = [window for window in windows if window.start <= now]
        if not begun:
            return []
        oldest = min(window.start for window in begun) - _LONGEST_LEASE
        of = begun[0].of
        leases: list[Lease] = []
        while not leases or leases[-1].created >= oldest:
            than = leases[-1] if leases else None
            some = await self._ledger.read(history.older, of.named, [of.group], than)
            if not some:
                break
            leases += some
        watched = await self._ledger.read(history.busy_seconds, [lease.id for lease in leases])
        busy = {each: busy_share(*seconds) or 0.0 for each, seconds in watched.items()}
        return attendance(begun, leases, busy, now)

    async def one(self, asker: Asker, lease_id: str) -> Lease:
        """Return one lease, however old.

        Raises:
            GPULeaseError: ``no_such_lease``.
        """
        if lease_id not in self._ledger.leases:
            found = await self._ledger.call(self._ledger.store.lease, lease_id)
            if found is not None and asker.may_see(found.user, found.groups):
                return found
        return self._commands.visible(asker, lease_id)

    async def events(self, asker: Asker, lease: Lease) -> list[LeaseEvent]:
        """Return what happened to a lease, oldest first."""
        rows = await self._ledger.read(history.transitions, lease.id)
        return [event_view(row, note_for(asker, row.source, row.target, row.note)) for row in rows]


def _states(state: str) -> tuple[LeaseState, ...] | None:
    if state in {"", "all"}:
        return None
    try:
        return (LeaseState(state),)
    except ValueError:
        raise GPULeaseError("invalid_query", f"There is no lease state {state!r}.") from None


#: A chart has about so many steps.
STEPS = 180
#: A heat map has about so many columns.
COLUMNS = 24
#: In so many parts a time is read.
_PARTS = 8
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)


async def read_timeline(
    ledger: Ledger, since: datetime, until: datetime
) -> tuple[list[Used], list[Waited]]:
    """Return what is stored of a time, read in parts: a month of it keeps no change waiting.

    Raises:
        GPULeaseError: the store cannot be read.
    """
    part = max((until - since) / _PARTS, _HOUR)
    found: list[Used] = []
    at = since
    while at < until:
        end = min(at + part, until)
        found += await ledger.read(usage.minutes, at, end)
        at = end
    return found, await ledger.read(usage.waits, since, until)


def step_of(length: timedelta, folded: bool, steps: int = STEPS) -> timedelta:
    """Return how long a step is: whole minutes, and whole hours where older hours are one row."""
    unit = _HOUR if folded else _MINUTE
    return max(-(-length // (steps * unit)), 1) * unit


async def read_by_device(
    ledger: Ledger, since: datetime, until: datetime, step: timedelta
) -> list[list[HeldTime]]:
    """Return what each lease used in each step; a step is one read, so no change waits for long.

    Raises:
        GPULeaseError: the store cannot be read.
    """
    starts = [since + number * step for number in range(-(-(until - since) // step))]
    return [await ledger.read(usage.by_lease, at, min(at + step, until)) for at in starts]


def by_device(
    steps: Sequence[Sequence[HeldTime]],
    devices: Iterable[Device],
    since: datetime,
    until: datetime,
    step: timedelta,
) -> list[DeviceUse]:
    """Return each device's shares of all steps, also of those that are no longer there.

    Args:
        steps: what leases used, by step.
        devices: those that are there now.
        since: the beginning of the first step.
        until: the end of the last step, which may be shorter than the others.
        step: how long a step is.
    """
    there = {device.uuid: device for device in devices}
    past = {uuid for one in steps for each in one for uuid in each.devices}
    held = {uuid: [[0.0, 0.0] for _ in steps] for uuid in there.keys() | past}
    for number, one in enumerate(steps):
        seconds = (min(since + (number + 1) * step, until) - since - number * step).total_seconds()
        for each in one:
            for uuid in each.devices:
                held[uuid][number][0] += each.held / seconds
                held[uuid][number][1] += each.busy / seconds
    found = [_use_of(uuid, there.get(uuid), shares) for uuid, shares in held.items()]
    return sorted(found, key=lambda each: (each["pool"], each["node"], each["name"], each["uuid"]))


def _use_of(uuid: str, device: Device | None, shares: Iterable[Sequence[float]]) -> DeviceUse:
    held, busy = zip(*shares, strict=True)
    return {
        "uuid": uuid,
        "name": device.name if device else "",
        "pool": device.pool if device else "",
        "node": device.node if device else "",
        "held": [round(min(share, 1.0), 3) for share in held],
        "busy": [round(min(share, 1.0), 3) for share in busy],
    }


@dataclass
class _Step:
    busy: float = 0.0  # device-seconds
    quiet: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0
    waiting: float = 0.0  # request-seconds
    waits: list[float] = field(default_factory=list)  # seconds, of those that got a GPU


def timeline(
    minutes: Iterable[Used],
    waits: Iterable[Waited],
    since: datetime,
    until: datetime,
    step: timedelta,
) -> list[TimelineStep]:
    """Return each step's averages: devices by what they did, and people who waited.

    Args:
        minutes: device-seconds by verdict.
        waits: the requests that waited within the time.
        since: the beginning of the first step.
        until: the end of the last step, which may be shorter than the others.
        step: how long a step is.
    """
    steps = [_Step() for _ in range(max(-(-(until - since) // step), 0))]
    for each in minutes:
        if since <= each.at < until:
            one = steps[(each.at - since) // step]
            one.busy, one.quiet = one.busy + each.busy, one.quiet + each.quiet
            one.idle, one.unknown = one.idle + each.idle, one.unknown + each.unknown
    for waited in waits:
        _add(steps, waited, since, until, step)
    found: list[TimelineStep] = []
    for number, one in enumerate(steps):
        at = since + number * step
        seconds = (min(at + step, until) - at).total_seconds()
        found.append(
            {
                "at": at.isoformat(),
                "busy": round(one.busy / seconds, 3),
                "quiet": round(one.quiet / seconds, 3),
                "idle": round(one.idle / seconds, 3),
                "unknown": round(one.unknown / seconds, 3),
                "waiting": round(one.waiting / seconds, 3),
                "granted": len(one.waits),
                "wait": round(median(one.waits), 1) if one.waits else None,
                "longest_wait": round(max(one.waits), 1) if one.waits else None,
            }
        )
    return found


def _add(
    steps: list[_Step], waited: Waited, since: datetime, until: datetime, step: timedelta
) -> None:
    begin, end = max(waited.since, since), min(waited.until or until, until)
    if begin < end:
        for number in range((begin - since) // step, -(-(end - since) // step)):
            at = since + number * step
            steps[number].waiting += (min(end, at + step) - max(begin, at)).total_seconds()
    if waited.granted and waited.until is not None and since <= waited.until < until:
        seconds = (waited.until - waited.since).total_seconds()
        steps[(waited.until - since) // step].waits.append(seconds)
