"""Who may still be given something in this plan: nobody's limit is promised twice."""

from __future__ import annotations

from gpulease.policy.admission import Unmet
from gpulease.policy.limits import Limits


class Promises:
    """What requests get that wait for what others leave, on top of what is held and started.

    Each of five requests of a project that may have one more device could start if it were the
    next; only one of them will, so only one of them takes anything back.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._made: set[str] = set()

    def has_room(self, want: Unmet) -> bool:
        """Whether a request could start with all that it lacks, once those before it did."""
        request = want.request
        if request.id in self._made or request.kept:
            return True
        return not self._limits.exceeded(request) and self._limits.within(request) is request

    def make(self, want: Unmet) -> None:
        """Count a request that is given something."""
        if want.request.id not in self._made and not want.request.kept:
            self._made.add(want.request.id)
            self._limits.grant(want.request)
