"""What a lease does at its granted end while the service is silent.

Pure: the end, the time and whether the service is heard in, the next step out.  Silence alone
changes nothing: it neither shortens a lease nor lengthens it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

#: How long before its end a lease whose service is silent warns in the notebook.
WARN_BEFORE = timedelta(seconds=60)

Step = Literal["", "warn", "clear", "leave"]


def next_step(hard_end: str, now: datetime, *, silent: bool, warned: bool) -> Step:
    """Return what is to be done now.

    Args:
        hard_end: ISO time at which the lease ends; "" for never.
        now: with its offset.
        silent: the service is not connected.
        warned: the notebook was warned by this lease itself.
    """
    end = datetime.fromisoformat(hard_end) if hard_end else None
    if silent and end is not None and now >= end:
        return "leave"
    near = end is not None and now >= end - WARN_BEFORE
    if warned:
        # A service that is back says itself what is to be said of the end.
        return "" if near and silent else "clear"
    return "warn" if near and silent else ""
