"""Quantiles of waits of which some were still open when they were counted last.

The estimate is Kaplan's and Meier's: an open wait says that it is longer than it was until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Wait:
    """Seconds of one wait; ``over`` is false where it was given up or still went on."""

    seconds: float
    over: bool


def quantile(waits: Iterable[Wait], share: float) -> float | None:
    """Return the seconds within which ``share`` (0..1) of the waits are over.

    ``None`` where so many were never seen to end, and where there are none.
    """
    # Of equal lengths those that are over come first: an open one lasts longer.
    ordered = sorted(waits, key=lambda wait: (wait.seconds, not wait.over))
    lasting = 1.0
    for number, wait in enumerate(ordered):
        if wait.over:
            lasting *= 1 - 1 / (len(ordered) - number)
            if lasting <= 1 - share + 1e-12:
                return wait.seconds
    return None
