"""Which requests want the same, so that where one of them finds nothing none after it does."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from gpulease.policy import queue
from gpulease.policy.admission.holds import gathers
from gpulease.policy.admission.remaining_capacity import Left
from gpulease.policy.fairness.fair_order import Line
from gpulease.policy.model import Lease


class Kinds:
    """The kinds of requests in one pass, and which of them may still be served.

    Free devices and open seats only become fewer while a plan is made: a kind that is settled
    stays so.

    Args:
        left: what is left in this pass.
    """

    def __init__(self, left: Left) -> None:
        self._left = left
        self._known: dict[str, Hashable] = {}

    @property
    def own(self) -> bool:
        """Whether a request may become of a kind of its own: that of who sits in a window."""
        return self._left.doors.any

    def of(self, request: Lease) -> Hashable:
        """Return what all requests have in common of which none is served where one is not."""
        if self.own:
            return self._of_whom(request), self._left.doors.kind(request)
        if request.count == 1:
            return (request.gpu_class, request.needs) if request.needs else request.gpu_class
        known = self._known.get(request.id)
        if known is None:
            known = self._known[request.id] = self._of_whom(request)
        return known

    def _of_whom(self, request: Lease) -> Hashable:
        waits = request.count > 1 and gathers(request, self._left.snapshot)
        wish = request.gpu_class, request.needs, request.count, request.nodes, request.min_count
        return *wish, waits

    def opened(self, line: Line) -> set[Hashable]:
        """Return the kinds of which something could be served, or kept, at all."""
        left, policy = self._left, self._left.snapshot.policy
        some = {pool for pool, there in left.free.items() if there}
        some |= {pool for pool, there in left.coming.items() if there}
        classes = policy.by_name.values()
        some |= {each.pool for each in classes if each.queue is not None}
        some |= {pool for pool in policy.elastic if left.growth.allows(pool)}
        names = {each.name for each in classes if each.pool in some - left.paused}
        found: set[Hashable] = set()
        for group in line.groups if names else ():
            if group[0].gpu_class in names:
                found |= self._of_group(group)
        return found

    def _of_group(self, group: Sequence[Lease]) -> set[Hashable]:
        """Return the kinds of requests that want the same: they gather devices now, or do not."""
        most = len(group) if self.own else 1 if group[0].count == 1 else 2
        found: set[Hashable] = set()
        for request in group:
            found.add(self.of(request))
            if len(found) >= most:
                break
        return found

    def is_settled(self, request: Lease) -> bool:
        """Whether nothing is left for any request of this kind, neither to take nor to keep."""
        left = self._left
        gpu_class = queue.class_of(left.snapshot.policy, request.gpu_class)
        if gpu_class is None or gpu_class.pool in left.paused:
            return True
        if gpu_class.queue is not None:
            return left.pending[gpu_class.name] >= gpu_class.queue.max_pending
        free, coming = left.free[gpu_class.pool], left.coming[gpu_class.pool]
        grows = left.growth.allows(gpu_class.pool, request.count)
        if grows or coming.loose(gpu_class.name, request.needs):
            return False
        if left.doors.refusal(request, gpu_class.pool):
            return True
        if left.doors.window_for(request) is not None:
            return not free.has_room(replace(request, count=request.least))
        gathering = request.count > 1 and gathers(request, left.snapshot)
        least, parts = (1, 1) if gathering else (request.per_node, request.nodes)
        least = min(least, request.least)
        loose = free.loose(gpu_class.name, request.needs).values()
        enough = (there for there in loose if len(there) >= least)
        return (
            next(enough, None) is None
            if parts == 1
            else sum(len(x) // least for x in enough) < parts
        )
