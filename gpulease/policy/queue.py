"""What people ask for, who waits and who holds, first come first.

Where projects share devices, ``fairness`` decides whose turn it is.

People ask for a part of a card as one GPU, and see it as one with its percent.  All other code
counts its parts, as it counts devices.

Nobody sits at the run of a whole notebook, so it can wait.  Its request *stands back*: every
request of a person comes before it, and nothing is taken back for it, however idle.  So that it
does not wait for ever it does so for ``batch_wait`` at most; from then on it is a request like any
other, with the ticket it has had from the beginning.  Then, whatever others ask, only those who
asked before it are served before it.  Without projects, or where its project is guaranteed a GPU,
it has one after the longest of the leases that run by then.

A run's lease *gives way* to a person's request however busy it is, after its minimum runtime, with
the ordinary warning; a cell that runs is let finish, for ``batch_cell`` at most.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TypeVar

from gpulease.errors import GPULeaseError
from gpulease.policy.catalog import percent
from gpulease.policy.lifecycle import HOLDING, time_outs_of
from gpulease.policy.model import GPUClass, Lease, LeaseState, Snapshot, keep, once
from gpulease.texts import Text

V = TypeVar("V")


def order(lease: Lease) -> tuple[tuple[datetime, int], str]:
    """Sort key of the queue: the ticket, which survives every return to the queue."""
    return lease.ticket, lease.id


#: The same as ``order``, for whole queues.
_ORDER = attrgetter("place")


@once
def waiting(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the queued requests, first come first."""
    queued = LeaseState.QUEUED
    return tuple(sorted([x for x in snapshot.leases if x.state is queued], key=_ORDER))


@once
def waiting_ids(snapshot: Snapshot) -> frozenset[str]:
    """Return the identifiers of the queued requests."""
    return frozenset([lease.id for lease in waiting(snapshot)])


@once
def by_person(snapshot: Snapshot) -> Mapping[str, Sequence[Lease]]:
    """Return the leases and requests of each person that have not ended."""
    found: dict[str, list[Lease]] = {}
    for lease in snapshot.leases:
        if lease.state is not LeaseState.ENDED:
            found.setdefault(lease.user, []).append(lease)
    return found


@once
def waiting_of(snapshot: Snapshot) -> Mapping[str, int]:
    """Return how many requests are queued of each person who has any."""
    return Counter([lease.user for lease in waiting(snapshot)])


def with_new(snapshot: Snapshot, request: Lease) -> Snapshot:
    """Return a snapshot in which one more request waits.

    Of hundreds that are made one after the other each needs to know those before it: what is known
    of thousands is not computed again.
    """
    more = replace(snapshot, leases=(*snapshot.leases, request))
    line, user = list(waiting(snapshot)), request.user
    insort(line, request, key=_ORDER)
    keep(waiting, more, tuple(line))
    theirs, numbers = by_person(snapshot), waiting_of(snapshot)
    keep(by_person, more, _put(theirs, user, (*theirs.get(user, ()), request)))
    keep(waiting_of, more, _put(numbers, user, numbers.get(user, 0) + 1))
    return more


def _put(known: Mapping[str, V], user: str, value: V) -> Mapping[str, V]:
    return {**known, user: value}


@once
def reshaping(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the requests that are leases in another shape: what they need is held for them."""
    return tuple([lease for lease in waiting(snapshot) if lease.kept])


@once
def becoming(snapshot: Snapshot) -> frozenset[str]:
    """Return the leases that become another shape or just did: what is held for them is theirs."""
    drained = {lease.id for lease in holding(snapshot) if lease.becomes is not None}
    return frozenset(drained.union(lease.id for lease in reshaping(snapshot)))


@once
def holding(snapshot: Snapshot) -> tuple[Lease, ...]:
    """Return the leases that hold devices, by ticket."""
    return tuple(sorted([x for x in snapshot.leases if x.state in HOLDING], key=_ORDER))


def without(snapshot: Snapshot, settled: Set[str]) -> Snapshot:
    """Return a snapshot without some of its leases that hold devices."""
    if not settled:
        return snapshot
    rest = replace(snapshot, leases=tuple([x for x in snapshot.leases if x.id not in settled]))
    keep(waiting, rest, waiting(snapshot))
    keep(waiting_ids, rest, waiting_ids(snapshot))
    return rest


def pool_of(snapshot: Snapshot, lease: Lease) -> str:
    """Return the pool a lease draws on; one whose class is gone belongs to its devices' pool."""
    gpu_class = snapshot.policy.by_name.get(lease.gpu_class)
    if gpu_class is not None:
        return gpu_class.pool
    if not lease.devices:
        return ""
    return next((d.pool for d in snapshot.devices if d.uuid in lease.devices), "")


@once
def by_pool(snapshot: Snapshot) -> Mapping[str, Sequence[Lease]]:
    """Return the queued requests of each pool, first come first; a pool whose first is first."""
    found: dict[str, list[Lease]] = {}
    for request in waiting(snapshot):
        found.setdefault(pool_of(snapshot, request), []).append(request)
    return found


def stands_back(request: Lease, snapshot: Snapshot) -> bool:
    """Whether a request lets everybody else go first."""
    waited = snapshot.now - request.ticket[0]
    return request.batch and waited < timedelta(seconds=snapshot.policy.batch_wait)


def gives_way(lease: Lease, snapshot: Snapshot) -> bool:
    """Whether a lease goes, used or not, where a person waits."""
    if not lease.batch or lease.state is not LeaseState.ACTIVE or lease.active_since is None:
        return False
    least = time_outs_of(snapshot.policy, lease).minimum_runtime
    return snapshot.now - lease.active_since >= timedelta(seconds=least)


def finishes_cell(lease: Lease, snapshot: Snapshot) -> bool:
    """Whether the drain of a lease that gives way is put off until its running cell has ended.

    Never beyond its hard end: that is nobody's to move.
    """
    evidence = snapshot.evidence.get(lease.id)
    if not lease.batch or evidence is None or not evidence.cells or lease.warned_until is None:
        return False
    until = lease.warned_until + timedelta(seconds=snapshot.policy.batch_cell)
    return snapshot.now < min(until, lease.hard_end or until)


@dataclass(frozen=True)
class Ask:
    """What a person or their notebook asked for; ``gpu_class`` ``None`` is the default class.

    ``wanted`` is how long in seconds (``None``: as long as the policy allows).  ``project`` is what
    it is charged to; ``None`` is ``charged_to``'s choice.  ``needs`` is as people write it.  The
    ``count`` devices are divided equally among ``nodes``.  With ``min_count`` of them it can live
    as well (``None``: all or nothing); of a class that is a part of a card, with ``at_least`` so
    many percent of it.  ``steps``: see ``in_parts``, which alone sets them.
    """

    user: str
    server: str
    gpu_class: str | None = None
    count: int = 1
    wanted: float | None = None
    kernel_id: str | None = None
    origin: str = "magic"
    groups: tuple[str, ...] = ()
    project: str | None = None
    in_quota_only: bool = False
    server_ready: bool = True
    batch: bool = False
    needs: str = ""
    nodes: int = 1
    min_count: int | None = None
    at_least: int | None = None
    steps: tuple[int, ...] = ()


def gpus(lease: Lease) -> int:
    """Return how many GPUs a lease has or asks for: parts of one card are one."""
    return 1 if lease.card_parts else lease.count


def share(lease: Lease, count: int | None = None) -> int:
    """Return how much of its card a lease has (or would have, of ``count`` parts) in percent.

    0 where it has whole devices.
    """
    return percent(lease.count if count is None else count, lease.card_parts or 1) * bool(
        lease.card_parts
    )


def amount(lease: Lease) -> str:
    """Return what a lease is, in words: ``2 x 't4'``, ``70% of one 't4'``."""
    if lease.card_parts:
        return f"{share(lease)}% of a card ({lease.gpu_class!r})"
    return f"{lease.count} x {lease.gpu_class!r}"


def in_parts(ask: Ask, gpu_class: GPUClass) -> Ask:
    """Return an ask in the devices of its class's pool: parts of a card, where they are such.

    Raises:
        GPULeaseError: ``bad_count``: several of them, or a least that is none of its steps.
    """
    if not gpu_class.parts:
        if ask.at_least is not None:
            raise _whole(gpu_class)
        return ask
    if ask.count != 1 or ask.nodes != 1 or ask.min_count is not None:
        raise _one_card(gpu_class)
    if ask.at_least is None:
        return replace(ask, count=gpu_class.parts)
    small = [each for each in gpu_class.steps if _percent(gpu_class, each) >= ask.at_least]
    if not small and ask.at_least != _percent(gpu_class, gpu_class.parts):
        raise _no_step(gpu_class, ask.at_least)
    least = min(small, default=None)
    return replace(ask, count=gpu_class.parts, min_count=least, steps=tuple(small))


def _percent(gpu_class: GPUClass, count: int) -> int:
    return percent(count, gpu_class.card_parts)


def no_card(gpu_class: GPUClass) -> GPULeaseError:
    """Return the refusal where not a single card of a class's pool is there."""
    return _refused(
        Text("There is no GPU of class '{name}'.", name=gpu_class.name),
        Text("Ask an admin when GPUs will be there."),
    )


def _whole(gpu_class: GPUClass) -> GPULeaseError:
    return _refused(
        Text("A GPU of class '{name}' is a whole one.", name=gpu_class.name),
        Text("Ask without --at-least."),
    )


def _one_card(gpu_class: GPUClass) -> GPULeaseError:
    said = {"name": gpu_class.name, "percent": _percent(gpu_class, gpu_class.parts)}
    return _refused(
        Text("Class '{name}' is {percent}% of one card: one request has one of it.", **said),
        Text("Ask without --count, --min-count and --nodes; --at-least lets it become smaller."),
    )


def _no_step(gpu_class: GPUClass, least: int) -> GPULeaseError:
    steps = ", ".join(f"{_percent(gpu_class, each)}%" for each in gpu_class.steps)
    message = Text(
        "Class '{name}' has no step of {least}% of a card or more.",
        name=gpu_class.name,
        least=least,
    )
    step = Text("Ask without --at-least: it has no smaller steps.")
    return _refused(message, Text("Its steps are: {steps}.", steps=steps) if steps else step)


def _refused(message: Text, step: Text) -> GPULeaseError:
    return GPULeaseError("bad_count", message, next_step=step, status=422)
