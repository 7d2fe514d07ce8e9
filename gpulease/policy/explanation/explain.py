"""Says to a person what is happening to a lease, why, what comes next and what they can do.

It chooses the words for each state and reason; the words stand in ``reasons``.  Sentences hold
instants and time-outs but no running counts, for a page shows them longer than a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from gpulease.policy import queue, reasons
from gpulease.policy.catalog import Elastic
from gpulease.policy.explanation import catalogue
from gpulease.policy.health import MAX_FAILURES
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import (
    Evidence,
    Lease,
    LeaseState,
    PolicyDocument,
    Shape,
    TimeOuts,
)
from gpulease.policy.reasons import Words
from gpulease.sizes import say_duration
from gpulease.texts import Text, counted, instant, joined

_GOES_ON: Final = (
    "A running cell is interrupted, your variables are saved to the notebook, and the "
    "next GPU cell uses the rest of the card."
)

#: Of a lease that becomes a smaller part of its card.
_SMALLER: Final[Words] = {
    "preempted_in_part": (
        "Somebody with priority needs a part of this GPU; you keep {share_kept}% of the card.",
        _GOES_ON,
    ),
    "reserved_in_part": (
        "A part of this GPU is reserved for a lab; you keep {share_kept}% of the card.",
        _GOES_ON,
    ),
}

OF_PARTS: Final[Mapping[LeaseState, Words]] = {
    LeaseState.WARNED: _SMALLER,
    LeaseState.DRAINING: _SMALLER,
    LeaseState.QUEUED: {
        "reshaped": (
            "Your variables are in your notebook; {share}% of a card is kept for you.",
            "It continues by itself in a moment.",
        ),
    },
}


_WORDS: Mapping[LeaseState, reasons.Words] = {
    LeaseState.QUEUED: reasons.WAITING,
    LeaseState.STARTING: reasons.STARTING,
    LeaseState.ACTIVE: reasons.ACTIVE,
    LeaseState.WARNED: reasons.LEAVING,
    LeaseState.DRAINING: reasons.LEAVING,
    LeaseState.ENDED: reasons.ENDED,
}


#: Who waits for these waits for no turn.
_WITHOUT_PLACE = frozenset({"no_budget"})


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
    between: tuple[datetime, datetime] | None = None,
    said: str = "",
    asides: str = "",
    outs: TimeOuts | None = None,
    reason: str = "",
) -> Explanation:
    """Return what to say of a lease; its place and its times come from ``forecast``.

    ``said``: a code of ``reasons.PROGRESS``, of a start that is under way.  ``asides``: what
    ``departures.about`` says of reservations, and ``beyond_share``.  ``outs``: its time-outs where
    they are not its class's.  ``reason``: a code of the words for its state, where more is known
    than it says itself.
    """
    words = _WORDS[lease.state]
    known = reasons.CAUSES.get(lease.end_cause)
    sentence, step = known or words.get(reason or lease.reason) or words.get("") or ("", "")
    if lease.card_parts:
        sentence, step = OF_PARTS.get(lease.state, {}).get(lease.reason, (sentence, step))
    numbers = _numbers(lease, policy, outs or time_outs_of(policy, lease))
    grows = policy.elastic.get(lease.pool)
    numbers["provision"] = say_duration((grows or Elastic(1)).provision_time)
    told: list[str] = [Text(sentence, **numbers)]
    next_step = Text(step, **numbers)
    if lease.state is LeaseState.QUEUED:
        if lease.reason not in _WITHOUT_PLACE:
            told += _place(position, expected, between)
        numbers |= {"position": position, "expected_start": _iso(expected)}
    elif lease.state is LeaseState.WARNED:
        released = Text("It is released at {time}.", time=_clock(lease.warned_until))
        changed = Text("It becomes smaller at {time}.", time=_clock(lease.warned_until))
        told.append(released if lease.becomes is None else changed)
        numbers["warned_until"] = _iso(lease.warned_until)
    elif lease.state is LeaseState.DRAINING:
        until = _clock(lease.drain_until)
        given = Text("It is being released, until {time} at most.", time=until)
        changing = Text("It is being changed, until {time} at most.", time=until)
        told.append(given if lease.becomes is None else changing)
        numbers["drain_until"] = _iso(lease.drain_until)
    elif lease.state is not LeaseState.ENDED:
        told += _less_than_asked(lease)
    if lease.state is LeaseState.STARTING:
        told.append(Text(reasons.PROGRESS.get(said, "")))
    elif lease.state is LeaseState.ACTIVE and grows is not None and grows.spot:
        told.append(Text("The cloud may take its machine back at short notice."))
    told += [asides, *_left_behind(lease)]
    if lease.end_note:
        told.append(Text("They wrote: {note}", note=lease.end_note))
    return Explanation(joined(*told), next_step, numbers)


def _less_than_asked(lease: Lease) -> list[Text]:
    found = []
    if lease.asked_class:
        classes = {"asked": lease.asked_class, "given": lease.gpu_class}
        found.append(Text("{asked} was full: you got {given}.", **classes))
    if lease.asked_count and lease.card_parts:
        shares = {
            "share": queue.share(lease),
            "asked": queue.share(lease, lease.asked_count),
        }
        found.append(
            Text("You have {share}% of a card, of the {asked}% that you asked for.", **shares)
        )
    elif lease.asked_count:
        counts = {"count": lease.count, "asked": lease.asked_count}
        found.append(Text("You have {count} of the {asked} GPUs that you asked for.", **counts))
    return found


def beyond_share(lease: Lease, policy: PolicyDocument, evidence: Evidence | None) -> str:
    """Say what an active lease holds of a shared card beyond its share, "" where it does not."""
    gpu_class = policy.by_name.get(lease.gpu_class)
    if evidence is None or not evidence.taken or gpu_class is None:
        return ""
    if lease.state is not LeaseState.ACTIVE:
        return ""
    return Text(
        "It holds {used} GiB of a shared GPU's memory, and its share is {share} GiB: it "
        "is released when others need theirs.",
        used=f"{evidence.taken / 2**30:.1f}",
        share=f"{gpu_class.memory_of(lease.count) / 2**30:.1f}",
    )


def of_wish(shape: Shape | None, lease: Lease, policy: PolicyDocument) -> str:
    """Say of an active lease that is less than was asked for what of that is free, or how it is
    told; "" of one that is what was asked for.
    """
    if lease.state is not LeaseState.ACTIVE or not (lease.asked_class or lease.asked_count):
        return ""
    if lease.becomes is not None:  # it is on its way there
        return ""
    if shape is None:
        gpu_class = policy.by_name.get(lease.gpu_class)
        if gpu_class is None or gpu_class.queue is not None:  # the cluster's queue promises nothing
            return ""
        return Text("You get a note when what you requested is available; a click moves you there.")
    if lease.card_parts:
        return Text(
            "{share}% of a card ({class}) is free now: `%gpu upgrade`, or a click, takes this "
            "notebook there.",
            **{"share": queue.share(lease, shape.count), "class": shape.gpu_class},
        )
    return Text(
        "{count} x {class} is free now: `%gpu upgrade`, or a click, takes this notebook there.",
        **{"count": shape.count, "class": shape.gpu_class},
    )


def admin_step(lease: Lease) -> str:
    """Return what an admin can do about somebody's lease, or ``""`` where nothing needs doing."""
    steps = catalogue.ADMIN_STEPS
    step = steps.get(lease.end_cause) or steps.get(lease.reason, "")
    return Text(step, lease=lease.id)


def _numbers(lease: Lease, policy: PolicyDocument, outs: TimeOuts) -> dict[str, Any]:
    nominated = lease.nominated_for is not None
    shape = lease.becomes
    idle = min(outs.idle, outs.idle_under_pressure) if nominated else outs.idle
    return {
        "lease": lease.id,
        "count": lease.count,
        "class": lease.gpu_class,
        "giving": len(lease.giving),
        "keeping": len(lease.devices) - len(lease.giving),
        "becoming": _becoming(lease, shape),
        "share": queue.share(lease),
        "share_kept": queue.share(lease, len(lease.devices) - len(lease.giving)),
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


def _becoming(lease: Lease, shape: Shape | None) -> str:
    if shape is None:
        return ""
    if lease.card_parts:
        return Text("{share}% of a card", share=queue.share(lease, shape.count))
    return f"{shape.count} x {shape.gpu_class}"


#: Reasons of coming back that are about variables which cannot leave.
NOT_HOME = frozenset({"undrainable", "not_home"})
#: So many variables are named in a sentence; a page lists them all.
_NAMED = 3


def _left_behind(lease: Lease) -> list[Text]:
    """Say what the last drain did not copy back, and where it is."""
    names = _named(lease)
    if lease.state is LeaseState.ACTIVE and names:
        known = lease.reason in NOT_HOME
        return [Text("Cannot be copied back: {names}.", names=names)] if known else []
    if lease.state in (LeaseState.WARNED, LeaseState.DRAINING) and names:
        left = {"names": names}
        return [
            Text(
                "Not copied back before: {names}. If they still cannot be copied, they are parked"
                " or lost.",
                **left,
            )
        ]
    if lease.state is not LeaseState.ENDED:
        return []
    parked = counted(
        "{n} value is parked: the notebook's next GPU cell finds it.",
        "{n} values are parked: the notebook's next GPU cell finds them.",
        lease.parked,
    )
    lost = [Text("Lost: {names}.", names=names)] if names else []
    return [parked, *lost] if lease.parked else lost


def _named(lease: Lease) -> str:
    said = ", ".join(
        f"`{name}` ({why.rstrip('.')})" if name else why.rstrip(".")
        for name, why in lease.blockers[:_NAMED]
    )
    more = len(lease.blockers) - _NAMED
    return Text("{names}, {n} more", names=said, n=more) if more > 0 else said


def _place(
    position: int | None, expected: datetime | None, between: tuple[datetime, datetime] | None
) -> list[Text]:
    if position is None:
        return []
    when = Text("No estimate yet.")
    if expected is not None:
        when = Text("Expected at {time}.", time=_clock(expected))
    if expected is not None and between is not None:
        early, late = (_clock(each) for each in between)
        when = Text(
            "Expected at {time}; 8 of 10 such requests start between {early} and {late}.",
            time=_clock(expected),
            early=early,
            late=late,
        )
    return [
        Text("You are next.")
        if position == 1
        else Text("You are number {n} in the queue.", n=position),
        when,
    ]


def _clock(at: datetime | None) -> str:
    if at is None:
        return Text("a time not yet known")
    return instant(at)


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at is not None else None
