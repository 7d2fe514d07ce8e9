"""What is worked out of a snapshot once, however often it is asked for.

A plan asks the same questions for each of hundreds of leases: which device is this, who holds what.
A snapshot never changes, so an answer holds as long as it does; its devices stay the same from one
to the next while nothing is heard of them.  What depends on anything else is
not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeVar

from gpulease.policy.model import Device, Snapshot

R = TypeVar("R")


def once(question: Callable[[Snapshot], R]) -> Callable[[Snapshot], R]:
    """Let a pure function of a snapshot be worked out once for each; nobody changes its answer."""

    @wraps(question)
    def answered(snapshot: Snapshot) -> R:
        memo = snapshot.memo
        if question in memo:
            known: R = memo[question]  # a plan asks thousands of times
            return known
        answer = memo[question] = question(snapshot)
        return answer

    return answered


def once_for_devices(
    question: Callable[[Sequence[Device]], R],
) -> Callable[[Snapshot], R]:
    """Let a pure function of the devices be worked out once for all snapshots that share them.

    Each ask makes a snapshot, and a large site has 40,000 devices.  The last two are known: plans
    have the devices with those marked that were just given back, all others have them as they are.
    """
    last: tuple[tuple[Sequence[Device], R], ...] = ()

    @wraps(question)
    def answered(snapshot: Snapshot) -> R:
        nonlocal last
        for devices, known in last:  # which another thread may replace meanwhile
            if devices is snapshot.devices:
                return known
        answer = question(snapshot.devices)
        last = ((snapshot.devices, answer), *last[:1])
        return answer

    return answered


def keep(question: Callable[[Snapshot], R], of: Snapshot, answer: R) -> None:
    """Let a snapshot have an answer that is known already."""
    of.memo[question.__wrapped__] = answer  # type: ignore[attr-defined]
