"""What one pass over the queue comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from gpulease.policy.admission.lacking import Unmet
from gpulease.policy.fairness.fair_order import Line
from gpulease.policy.limits import Limits
from gpulease.policy.model import Action, Lease


@dataclass
class Admission:
    """The outcome of one pass over the queue.

    Attributes:
        actions: what is done to the requests.
        started: pool -> the requests that start on its devices.
        limits: what is held by everybody once these have started.
        queues: in which the requests stand.
        lacking: those that nothing but capacity keeps waiting, in groups that lack the same.
    """

    actions: list[Action] = field(default_factory=list)
    started: dict[str, list[Lease]] = field(default_factory=dict)
    queues: Sequence[Line] = ()
    limits: Limits | None = None
    lacking: list[tuple[Unmet, Sequence[Lease]]] = field(default_factory=list)
    _lacks: dict[str, Unmet] = field(default_factory=dict)
    _fewer: dict[str, Lease] = field(default_factory=dict)  # who may have less than they asked for

    def lack(self, unmet: Unmet, requests: Sequence[Lease]) -> None:
        """Note who lacks the same, as far as their limits go; ``unmet`` is of any of them."""
        self.lacking.append((unmet, requests))
        self._lacks.update(dict.fromkeys([request.id for request in requests], unmet))
        if requests[0].min_count:
            self._fewer.update({request.id: request for request in requests})

    def served(self, requests: Set[str]) -> None:
        """Note that some lack nothing any more."""
        left = [
            (unmet, [x for x in found if x.id not in requests]) for unmet, found in self.lacking
        ]
        self.lacking = [(unmet, found) for unmet, found in left if found]
        for each in requests:
            self._lacks.pop(each, None)

    def unmet_of(self, request: Lease) -> Unmet | None:
        """Return what a request lacks, ``None`` where that is nothing, or more than capacity."""
        found = self._lacks.get(request.id)
        if found is None or found.request is request:
            return found
        return Unmet(self._fewer.get(request.id, request), *found[1:])

    def unmet(self, pool: str | None = None) -> Iterator[Unmet]:
        """Yield those that lack devices (of one pool), in the order of turns."""
        for line in self.queues:
            for request in line if pool is None or line.pool in (None, pool) else ():
                found = self.unmet_of(request)
                if found is not None and pool in (None, found.pool):
                    yield found
