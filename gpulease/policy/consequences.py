"""What another policy would do at once, to whom: the same snapshot planned under both.

These are sentences about running leases and waiting requests.  What it means for everybody later
is ``explanation.audience``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpulease.policy.explanation.reasons import WAITING
from gpulease.policy.model import (
    End,
    Lease,
    LeaseState,
    PolicyDocument,
    Snapshot,
    Start,
    Wait,
)
from gpulease.policy.planner import plan
from gpulease.policy.queue import waiting
from gpulease.policy.reclaim.reclaim_candidates import why_idle
from gpulease.texts import Text, counted

#: Names of people in one sentence; more are counted.
_NAMED = 5


def at_once(snapshot: Snapshot, policy: PolicyDocument) -> list[str]:
    """Return a sentence for each kind of thing that would happen now; empty where nothing would.

    No lease ends by a change alone: what counts as unused gets its full warning.
    """
    after = replace(snapshot, policy=policy)
    return [*_running(snapshot, after), *_waiting(snapshot, after)]


def warned_by(snapshot: Snapshot, policy: PolicyDocument) -> list[Lease]:
    """Return the active leases that count as unused under a policy and do not today.

    A lease is under pressure where somebody waits for its pool.
    """
    after = replace(snapshot, policy=policy)
    pressed, pressed_after = _under_pressure(snapshot), _under_pressure(after)
    return [
        lease
        for lease in snapshot.leases
        if lease.state is LeaseState.ACTIVE
        and why_idle(after, lease, lease.gpu_class in pressed_after)
        and not why_idle(snapshot, lease, lease.gpu_class in pressed)
    ]


def _running(before: Snapshot, after: Snapshot) -> Iterator[str]:
    warned = warned_by(before, after.policy)
    if warned:
        yield counted(
            "Warned now: {n} lease counts as unused under it ({who}).",
            "Warned now: {n} leases count as unused under it ({who}).",
            len(warned),
            who=_who(warned),
        )
    gone = [
        lease
        for lease in before.leases
        if lease.state not in (LeaseState.QUEUED, LeaseState.ENDED)
        and lease.gpu_class in before.policy.by_name
        and lease.gpu_class not in after.policy.by_name
    ]
    if gone:
        yield Text(
            "Running leases of a class that would be gone keep their GPUs ({who}).", who=_who(gone)
        )


def _waiting(before: Snapshot, after: Snapshot) -> Iterator[str]:
    now, then = _outcomes(before), _outcomes(after)
    known = {request.id: request for request in waiting(before)}

    def those(kind: str, *, anew: bool = True) -> list[Lease]:
        first, second = (then, now) if anew else (now, then)
        return [known[k] for k, v in first.items() if v == kind and second.get(k) != kind]

    for requests, said in (
        (those("start"), Text("Served now")),
        (those("start", anew=False), Text("Not served now")),
        (those("end"), Text("Refused now, for the class would be gone")),
    ):
        if requests:
            yield counted(
                "{said}: {n} request ({who}).",
                "{said}: {n} requests ({who}).",
                len(requests),
                said=said,
                who=_who(requests),
            )
    for reason in sorted({v for v in then.values() if v not in ("start", "end")}):
        others = [x for x in those(reason) if now.get(x.id) != "start"]
        # Reasons with numbers in them are said of one person; here they are said of several.
        if others and "{" not in (sentence := WAITING.get(reason, ("", ""))[0]) and sentence:
            yield Text(
                "Waiting for another reason ({who}): {why}", who=_who(others), why=Text(sentence)
            )


def _outcomes(snapshot: Snapshot) -> dict[str, str]:
    """Return what a plan makes of each waiting request: "start", "end" or why it waits."""
    found = {request.id: request.reason for request in waiting(snapshot)}
    for action in plan(snapshot):
        if action.lease_id not in found:
            continue
        if isinstance(action, Start):
            found[action.lease_id] = "start"
        elif isinstance(action, End):
            found[action.lease_id] = "end"
        elif isinstance(action, Wait):
            found[action.lease_id] = action.reason
    return found


def _who(leases: Sequence[Lease]) -> str:
    names = list(dict.fromkeys(sorted(lease.user for lease in leases)))
    few = ", ".join(names[:_NAMED])
    more = len(names) - _NAMED
    return Text("{names} and {n} more", names=few, n=more) if more > 0 else few


def _under_pressure(snapshot: Snapshot) -> frozenset[str]:
    """Return the classes of leases for whose pool somebody waits."""
    pools = {each.name: each.pool for each in snapshot.policy.classes}
    wanted = {
        pools.get(each.gpu_class) for each in snapshot.leases if each.state is LeaseState.QUEUED
    }
    held = {each.gpu_class for each in snapshot.leases}
    return frozenset(name for name in held if pools.get(name) in wanted)
