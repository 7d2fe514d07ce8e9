"""Says to a person what is happening to a lease, why, what comes next and what they can do.

Owns the choice of words for each state and reason; the words stand in ``reasons``.  Sentences hold
instants and time-outs but no running counts, for a page shows them longer than a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpulease.policy.explanation import reasons
from gpulease.policy.explanation.refusals import REFUSALS
from gpulease.policy.health.checks import MAX_FAILURES
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import Lease, LeaseState, PolicyDocument, TimeOuts
from gpulease.policy.units import say_count, say_duration

_WORDS: Mapping[LeaseState, reasons.Words] = {
    LeaseState.QUEUED: reasons.WAITING,
    LeaseState.STARTING: reasons.STARTING,
    LeaseState.ACTIVE: reasons.ACTIVE,
    LeaseState.WARNED: reasons.LEAVING,
    LeaseState.DRAINING: reasons.LEAVING,
    LeaseState.ENDED: reasons.ENDED,
}


@dataclass(frozen=True)
class Explanation:
    """A sentence, what comes next or can be done, and the numbers behind both (JSON values)."""

    sentence: str
    next_step: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


def explain(
    lease: Lease,
    policy: PolicyDocument,
    *,
    position: int | None = None,
    expected: datetime | None = None,
    said: str = "",
    lab: str = "",
    outs: TimeOuts | None = None,
) -> Explanation:
    """Return what to say of a lease; ``position`` and ``expected`` come from ``forecast``.

    ``said``: a code of ``reasons.PROGRESS``, of a start that is under way.  ``lab``: what
    ``labs.about`` says of reservations.  ``outs``: its time-outs where they are not its class's.
    """
    words = _WORDS[lease.state]
    sentence, step = (
        reasons.CAUSES.get(lease.end_cause) or words.get(lease.reason) or words.get("") or ("", "")
    )
    numbers = _numbers(lease, policy, outs or time_outs_of(policy, lease))
    sentence, step = sentence.format_map(numbers), step.format_map(numbers)
    if lease.state is LeaseState.QUEUED:
        sentence = f"{sentence} {_place(position, expected)}".strip()
        numbers |= {"position": position, "expected_start": _iso(expected)}
    elif lease.state is LeaseState.WARNED:
        sentence = f"{sentence} It leaves at {_clock(lease.warned_until)}."
        numbers["warned_until"] = _iso(lease.warned_until)
    elif lease.state is LeaseState.DRAINING:
        sentence = f"{sentence} It is being given back, until {_clock(lease.drain_until)} at most."
        numbers["drain_until"] = _iso(lease.drain_until)
    elif lease.asked_class and lease.state is not LeaseState.ENDED:
        sentence = f"{sentence} {lease.asked_class} was full: {lease.gpu_class} serves you."
    if lease.state is LeaseState.STARTING:
        sentence = f"{sentence} {reasons.PROGRESS.get(said, '')}"
    sentence = " ".join(part for part in (sentence.strip(), lab, _left_behind(lease)) if part)
    if lease.end_note:
        sentence = f"{sentence} They wrote: {lease.end_note}"
    return Explanation(sentence, step, numbers)


def admin_step(lease: Lease) -> str:
    """Return what an admin can do about somebody's lease, or ``""`` where nothing needs doing."""
    steps = reasons.ADMIN_STEPS
    step = steps.get(lease.end_cause) or steps.get(lease.reason, "")
    return step.format_map({"lease": lease.id})


def refusal(code: str) -> Explanation:
    """Return what a refusal's code means.

    Raises:
        KeyError: the code is in no catalogue.
    """
    sentence, step = REFUSALS[code]
    return Explanation(sentence, step)


def _numbers(lease: Lease, policy: PolicyDocument, outs: TimeOuts) -> dict[str, Any]:
    nominated = lease.nominated_for is not None
    idle = min(outs.idle, outs.idle_under_pressure) if nominated else outs.idle
    return {
        "lease": lease.id,
        "idle": say_duration(idle),
        "quiet": say_duration(outs.quiet),
        "busy_max": say_duration(outs.busy_max),
        "claim": say_duration(outs.claim),
        "start_max": say_duration(outs.start_max),
        "user_limit": policy.leases_per_user,
        "server_limit": policy.leases_per_server,
        "project": policy.projects.home(lease.project).name or "(none)",
        "failures": lease.failures,
        "max_failures": MAX_FAILURES,
        "kept_until": _clock(lease.kept_until),
        "hard_end": _clock(lease.hard_end),
    }


#: Reasons of coming back that are about variables which cannot leave.
NOT_HOME = frozenset({"undrainable", "not_home"})
#: So many variables are named in a sentence; a page lists them all.
_NAMED = 3


def _left_behind(lease: Lease) -> str:
    """Say what the last drain did not bring home, and where it is."""
    names = _named(lease)
    if lease.state is LeaseState.ACTIVE and names:
        return f"Cannot leave: {names}." if lease.reason in NOT_HOME else ""
    if lease.state in (LeaseState.WARNED, LeaseState.DRAINING) and names:
        return f"Could not leave before: {names}. What still cannot is parked, or lost."
    if lease.state is not LeaseState.ENDED:
        return ""
    parked = say_count(lease.parked, "value is", "values are")
    kept = f"{parked} parked: the notebook's next GPU cell finds them." if lease.parked else ""
    return f"{kept} {f'Lost: {names}.' if names else ''}".strip()


def _named(lease: Lease) -> str:
    said = [
        f"`{name}` ({why.rstrip('.')})" if name else why.rstrip(".")
        for name, why in lease.blockers[:_NAMED]
    ]
    more = len(lease.blockers) - _NAMED
    return ", ".join([*said, f"{more} more"] if more > 0 else said)


def _place(position: int | None, expected: datetime | None) -> str:
    if position is None:
        return ""
    place = "You are next." if position == 1 else f"You are number {position} in the queue."
    when = f"Expected at {_clock(expected)}." if expected else "When it starts is not known yet."
    return f"{place} {when}"


def _clock(at: datetime | None) -> str:
    return at.astimezone(UTC).strftime("%H:%M:%S UTC") if at is not None else "a time not yet known"


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at is not None else None
