"""Who lacks devices of a pool: in groups that lack the same, and in the order of turns."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence

from gpulease.policy.admission import Admission, Unmet
from gpulease.policy.batch import stands_back
from gpulease.policy.fairness.fair_order import Turns
from gpulease.policy.model import Lease, Snapshot
from gpulease.policy.reclaim.over_quota import Borrowed
from gpulease.policy.reclaim.reclaim_candidates import Places


class Wants:
    """Those who lack devices of a pool, in the order of turns.

    Nothing is taken back for runs that stand ``back``: they are left out.

    Attributes:
        groups: the same ones, in groups that lack the same: what one of them lacks, and all.
    """

    def __init__(self, snapshot: Snapshot, admitted: Admission, pool: str) -> None:
        self.snapshot, self.pool = snapshot, pool
        self._admitted = admitted
        self.groups: list[tuple[Unmet, Sequence[Lease]]] = []
        self._back: set[str] = set()

    def add(self, unmet: Unmet, group: Sequence[Lease]) -> None:
        """Put in a group."""
        if group[0].batch:
            self._back.update([x.id for x in group if stands_back(x, self.snapshot)])
            group = [x for x in group if x.id not in self._back]
        if group:
            self.groups.append((unmet, group))

    def __iter__(self) -> Iterator[Unmet]:
        back = self._back
        return (x for x in self._admitted.unmet(self.pool) if x.request.id not in back)

    def of(self, request: Lease) -> Unmet | None:
        """Return what one request lacks of the pool, ``None`` for nothing."""
        found = self._admitted.unmet_of(request)
        mine = found is not None and found.pool == self.pool and request.id not in self._back
        return found if mine else None

    def among(self, names: Container[str]) -> Iterator[Unmet]:
        """Yield those of some identifiers."""
        for unmet, group in self.groups:
            for request in group:
                if request.id in names:
                    yield unmet._replace(request=request)

    def given(self, places: Places) -> Iterator[Unmet]:
        """Yield those that lack nothing any more, or only what comes free by itself."""
        for unmet, group in self.groups:
            comes = min(unmet.missing.values(), default=0) <= 0
            for request in group if comes else [x for x in group if places.is_settled(x)]:
                want = unmet._replace(request=request)
                if places.missing(want) <= 0:
                    yield want


def wants_by_pool(snapshot: Snapshot, admitted: Admission) -> dict[str, Wants]:
    """Return who lacks devices, by pool; runs that stand back are left out."""
    found: dict[str, Wants] = {}
    for unmet, group in admitted.lacking:
        wants = found.get(unmet.pool)
        if wants is None:
            wants = found[unmet.pool] = Wants(snapshot, admitted, unmet.pool)
        wants.add(unmet, group)
    return found


class Asking:
    """Who may get something of what others borrow, in turn, as long as their project may.

    They are of kinds of which nobody gets anything where one does not.  A kind that got nothing is
    done, until its project stands otherwise than before.

    Args:
        wants: who lacks devices.
        borrowed: what of the pool is held over quota.
        own: for whom leases leave already; each of these is of a kind of their own.
    """

    def __init__(self, wants: Wants, borrowed: Borrowed, own: Container[str]) -> None:
        self._wants, self._borrowed, self._own = wants, borrowed, own
        self._turns = Turns(wants.snapshot, wants.pool)
        self._kinds: dict[str, dict[Hashable, Lease]] = {}  # project -> kind -> one who asks
        self._opened: dict[str, set[Hashable]] = {}  # side of the turns -> kinds
        for unmet, group in wants.groups:
            for request in self._of_each_kind(group):
                kinds = self._kinds.setdefault(request.project, {})
                kinds[self._kind(unmet, request)] = request
        for kinds in self._kinds.values():
            self._open({k: asks for k, asks in kinds.items() if borrowed.may_serve(asks)})

    def _of_each_kind(self, group: Sequence[Lease]) -> Sequence[Lease]:
        """Return one request at least of each kind of those that lack the same."""
        first = {x.project: x for x in group} if group[0].project else {}
        if not self._own and not self._borrowed.spends and len(first) == 1:
            return group[:1]
        return group

    def _kind(self, unmet: Unmet, request: Lease) -> Hashable:
        """Return the kind of a request; who lacks the same (the very object) asks for as many."""
        own = request.id if self._own and request.id in self._own else ""
        return id(unmet.missing), own, self._borrowed.kind(request)

    def _open(self, kinds: Mapping[Hashable, Lease]) -> None:
        """Let those of some kinds ask from now on."""
        for kind, request in kinds.items():
            side = self._borrowed.side(request)
            self._opened.setdefault(side, set()).add(kind)
            self._turns.open((side,))

    def __iter__(self) -> Iterator[Unmet]:
        for request in self._turns:
            want = self._wants.of(request)
            if want is None:
                continue
            opened = self._opened.get(self._borrowed.side(request), ())
            if self._kind(want, request) in opened:
                yield want

    def again(self, projects: Iterable[str]) -> None:
        """Let those ask again whose projects gave or got something."""
        for project in projects:
            self._open(self._kinds.get(project, {}))

    def close(self, want: Unmet) -> None:
        """Let nobody of a kind ask any more."""
        side = self._borrowed.side(want.request)
        opened = self._opened[side]
        opened.discard(self._kind(want, want.request))
        if not opened:
            self._turns.close(side)
