"""What one pass over the queue comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpulease.policy.admission.lacking import Unmet
from gpulease.policy.fairness.turns import Line
from gpulease.policy.limits import Limits
from gpulease.policy.model import Action, Lease


@dataclass
class Admission:
    """The outcome of one pass over the queue.

    Attributes:
        actions: what is done to the requests.
        started: pool -> the requests that start on its devices.
        lacking: those that nothing but capacity keeps waiting.
        limits: what is held by everybody once these have started.
    """

    actions: list[Action] = field(default_factory=list)
    started: dict[str, list[Lease]] = field(default_factory=dict)
    lacking: dict[str, Unmet] = field(default_factory=dict)
    queues: Sequence[Line] = ()
    limits: Limits | None = None

    def unmet(self, pool: str | None = None) -> Iterator[Unmet]:
        """Yield those that lack devices (of one pool), in the order of turns."""
        lacking = self.lacking
        for line in self.queues:
            for request in line if pool is None or line.pool in (None, pool) else ():
                found = lacking.get(request.id)
                if found is not None and pool in (None, found.pool):
                    yield found
