"""A trace of what really happened: leases as they were recorded, and when their GPUs were used.

The module decides which leases form one session and which part of a lease was use.  Pure: the
caller asks the store and passes its answers in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.model import Lease, Verdict
from gpulease.simulate.outcome import project_of
from gpulease.simulate.trace import Seen, Trace, sessions_of

#: Leases of one server belong to one session unless nothing was held for longer than this.
APART = timedelta(hours=4)
#: Pauses shorter than this (seconds) are none: verdicts are changed by samples of ten seconds.
_JOINED = 1.0
#: A running cell counts as use even where it leaves the device alone: it holds the lease as well.
_USED = frozenset({Verdict.BUSY, Verdict.QUIET})

Verdicts = Sequence[tuple[datetime, Verdict]]


@dataclass(frozen=True)
class Recorded:
    """A trace from the record, and how many requests it says nothing about.

    ``left_out`` are those that ended before they had a GPU: what they would have done with it
    nobody knows.
    """

    trace: Trace
    requests: int
    left_out: int


def recorded(
    leases: Iterable[Lease],
    verdicts: Mapping[str, Verdicts],
    since: datetime,
    until: datetime,
    reservations: Sequence[Reservation] = (),
) -> Recorded:
    """Return the trace of the leases that were asked for within a time.

    Args:
        leases: in any order, ended or not.
        verdicts: the changes of verdict of each lease, oldest first; a lease without any was used
            for as long as it was active.
        since: the beginning.
        until: the end; what is not over by then ends then.
        reservations: those whose windows counted.
    """
    asked = sorted((x for x in leases if since <= x.created < until), key=lambda x: x.created)
    seen: list[Seen] = []
    number: dict[tuple[str, str], int] = {}
    ended: dict[tuple[str, str], datetime] = {}
    left_out = 0
    for lease in asked:
        if lease.active_since is None:
            left_out += 1
            continue
        key = lease.user, lease.server
        if key not in number or lease.created - ended[key] > APART:
            number[key] = number.get(key, 0) + 1
        ended[key] = lease.ended or until
        session = f"{lease.user}/{lease.server}/{number[key]}"
        seen += _bursts(lease, verdicts.get(lease.id, ()), session, since, until)
    trace = Trace(since, (until - since).total_seconds(), sessions_of(seen), tuple(reservations))
    return Recorded(trace, len(asked), left_out)


def _bursts(
    lease: Lease, changes: Verdicts, session: str, since: datetime, until: datetime
) -> list[Seen]:
    begun = lease.active_since or lease.created
    ended = min(lease.ended or until, until)
    spans = used_spans(changes, begun, ended)
    found = []
    for first, (start, end) in enumerate(spans):
        # The first one was asked for with the lease itself, and waited for it.
        asked = lease.created if first == 0 else start
        found.append(
            Seen(
                session=session,
                start=(asked - since).total_seconds(),
                busy=(end - start).total_seconds(),
                user=lease.user,
                project=project_of(lease),
                groups=lease.groups,
                gpu_class=lease.asked_class or lease.gpu_class,
                count=1 if lease.card_parts else lease.asked_count or lease.count,
                waited=(start - asked).total_seconds(),
                until=(ended - since).total_seconds(),
            )
        )
    return found


def used_spans(
    changes: Verdicts, begun: datetime, ended: datetime
) -> list[tuple[datetime, datetime]]:
    """Return when a lease was used between two instants, at least one span.

    Where nothing is known of it, it was used throughout; where it was never used, at its begin.
    While no data came it was as before.
    """
    if not any(verdict is not Verdict.UNKNOWN for _, verdict in changes):
        return [(begun, max(begun, ended))]
    spans: list[tuple[datetime, datetime]] = []
    since: datetime | None = None
    for at, verdict in changes:
        moment = min(max(at, begun), ended)
        if verdict in _USED and since is None:
            since = moment
        elif verdict is Verdict.IDLE and since is not None:
            spans.append((since, moment))
            since = None
    if since is not None:
        spans.append((since, ended))
    return _joined([span for span in spans if span[1] > span[0]]) or [(begun, begun)]


def _joined(spans: list[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    found: list[tuple[datetime, datetime]] = []
    for start, end in spans:
        if found and (start - found[-1][1]).total_seconds() < _JOINED:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return found
