"""What an ask becomes: the same lease again, a new request, or a refusal.

A repeated ask is the same ask, and an ask cancels a drain where nobody waits.  The service has
checked before who may ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches

from gpulease.errors import GPULeaseError
from gpulease.policy import budgets, capacity, fitting, lifecycle, limits, queue
from gpulease.policy.fitting import room, suits
from gpulease.policy.model import EndReason, GPUClass, Lease, LeaseState, Snapshot
from gpulease.policy.pods import QueueEngine
from gpulease.policy.projects import Project
from gpulease.policy.queue import Ask
from gpulease.policy.reservations.seats import in_hold
from gpulease.sizes import format_size, say_count
from gpulease.texts import Text, counted

__all__ = ["REVOCABLE", "Answer", "Ask", "answer", "budget_for", "charged_to", "check"]

#: A lease that leaves for one of these may be asked back while it drains.
REVOCABLE = frozenset({EndReason.IDLE, EndReason.RETURNED})


#: Hubs learn from an identity provider at sign-in in which groups somebody is.
JOINED = "If you were added to a group after you signed in, sign out of the hub and sign in again."


@dataclass(frozen=True)
class Answer:
    """The lease that answers an ask; ``new`` and ``changed`` say whether it must be stored."""

    lease: Lease
    new: bool = False
    changed: bool = False


def answer(ask: Ask, snapshot: Snapshot, lease_id: str, ticket: tuple[datetime, int]) -> Answer:
    """Return the lease for this ask; ``lease_id`` and ``ticket`` are used if it is a new one.

    Raises:
        GPULeaseError: ``unknown_class``, ``unknown_project``, ``class_not_allowed``, ``bad_count``,
            ``bad_nodes``, ``bad_duration``, ``bad_needs``, ``other_lease``, ``queue_full``,
            ``too_many_waiting``.
    """
    gpu_class = _checked(ask, snapshot)
    ask = queue.in_parts(ask, gpu_class)
    project = charged_to(ask, gpu_class, snapshot)
    theirs = queue.by_person(snapshot).get(ask.user, ())
    mine = sorted([lease for lease in theirs if lease.server == ask.server], key=queue.order)
    standing = [lease for lease in mine if _goes_on(lease, snapshot)]
    for lease in standing:
        if _serves(lease, gpu_class, ask):
            return Answer(lease)
    if len(standing) >= snapshot.policy.leases_per_server:
        raise _other_lease(standing[0], gpu_class)
    for lease in mine:
        if _serves(lease, gpu_class, ask) and _can_be_called_back(lease, snapshot):
            return Answer(lifecycle.asked_again(lease, snapshot.now), changed=True)
    new = _new(ask, gpu_class, project, lease_id, ticket, now=snapshot.now)
    limits.check_ever(new, snapshot.policy)
    _check_queue(ask, snapshot)
    return Answer(new, new=True)


def check(ask: Ask, snapshot: Snapshot) -> None:
    """Refuse what could not be asked for now, for a request that will be made later.

    Raises:
        GPULeaseError: ``unknown_class``, ``unknown_project``, ``class_not_allowed``, ``bad_count``,
            ``bad_nodes``, ``bad_duration``, ``bad_needs``.
    """
    gpu_class = _checked(ask, snapshot)
    ask = queue.in_parts(ask, gpu_class)
    project = charged_to(ask, gpu_class, snapshot)
    request = _new(ask, gpu_class, project, "", (snapshot.now, 0), now=snapshot.now)
    limits.check_ever(request, snapshot.policy)


def _serves(lease: Lease, gpu_class: GPUClass, ask: Ask) -> bool:
    """Whether a lease is what is asked for, be it by a fall-back of it."""
    right_class = gpu_class.name in (lease.gpu_class, lease.asked_class)
    same_needs = str(fitting.parse_needs(ask.needs)) in ("", lease.needs)
    enough = max(lease.count, lease.asked_count) >= ask.count and same_needs
    same_nodes = ask.nodes in (1, lease.nodes)
    return right_class and enough and same_nodes and ask.project in (None, lease.project)


def charged_to(ask: Ask, gpu_class: GPUClass, snapshot: Snapshot) -> str:
    """Return the project that an ask is charged to, "" where the policy has none.

    The one that is named; else that of a reservation whose seat is asked for; else the first, in
    the document's order, of which the person has budget left; else the first.

    Raises:
        GPULeaseError: ``unknown_project``: there is none of this name for this person;
            ``class_not_allowed``: what the project may have is another class.
    """
    all_mine = snapshot.policy.projects.of(ask.groups) if snapshot.policy.projects.all else ()
    mine = [each for each in all_mine if not each.classes or gpu_class.name in each.classes]
    names = [project.name for project in mine]
    if all_mine and (not mine or ask.project in {p.name for p in all_mine} - set(names)):
        raise _class_not_allowed(gpu_class, ask.project, names, all_mine)
    if ask.project is not None:
        if ask.project not in names:
            raise _unknown_project(ask.project, names)
        return ask.project
    for window in in_hold(snapshot.windows, snapshot.now):
        seats = window.of.gpu_class == gpu_class.name and window.entitles(ask.user, ask.groups)
        for project in mine if seats else ():
            if project.group == window.of.group:
                return project.name
    for name in names:
        left = budgets.remainder(snapshot, name, ask.user)
        if left is None or left.left > 0:
            return name
    return names[0] if names else ""


def budget_for(ask: Ask, snapshot: Snapshot) -> budgets.Remainder | None:
    """Return what is left of what an ask would be charged to, ``None`` for no bound.

    Raises:
        GPULeaseError: those of ``check``.
    """
    if not snapshot.policy.projects.all:
        return None
    project = charged_to(ask, _checked(ask, snapshot), snapshot)
    return budgets.remainder(snapshot, project, ask.user)


def _class_not_allowed(
    gpu_class: GPUClass, named: str | None, others: list[str], mine: Sequence[Project]
) -> GPULeaseError:
    where = f"Project {named} has" if named is not None else "Your projects have"
    classes = sorted({name for p in mine if named in (None, p.name) for name in p.classes})
    step = f"Ask for one of: {', '.join(classes)}."
    return GPULeaseError(
        "class_not_allowed",
        f"{where} no GPUs of class {gpu_class.name!r}.",
        next_step=f"{step} Or charge it to {', '.join(others)}." if others else f"{step} {JOINED}",
        numbers={"classes": classes, "projects": others},
    )


def _ask_for(names: list[str]) -> str:
    return f"Ask for one of: {', '.join(names)}." if names else "Name none."


def _unknown_project(name: str, names: list[str]) -> GPULeaseError:
    return GPULeaseError(
        "unknown_project",
        f"You are in no project {name!r}.",
        next_step=f"{_ask_for(names)} {JOINED}",
        numbers={"projects": names},
    )


def _checked(ask: Ask, snapshot: Snapshot) -> GPUClass:
    policy = snapshot.policy
    gpu_class = policy.by_name.get(ask.gpu_class or policy.default_class)
    names = [c.name for c in policy.classes]
    if gpu_class is None:
        close = get_close_matches(ask.gpu_class or "", names, 1)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise GPULeaseError(
            "unknown_class",
            f"There is no GPU class {ask.gpu_class!r} here.",
            next_step=f"{hint}Ask for one of: {', '.join(names)}.",
            numbers={"classes": names},
            status=422,
        )
    ask = queue.in_parts(ask, gpu_class)
    if not 1 <= ask.count <= gpu_class.most:
        raise _bad_count(ask.count, gpu_class, gpu_class.most, "a request may have")
    if ask.min_count is not None:
        _check_min_count(ask, ask.min_count)
    others = [policy.by_name.get(name) for name in gpu_class.fallback]
    pools = [gpu_class.pool, *(other.pool for other in others if other is not None)]
    sizes = capacity.pool_sizes(snapshot)
    there = max(capacity.most_devices(snapshot, pool, sizes[pool]) for pool in pools)
    if snapshot.capacity_known and there < ask.count:
        if gpu_class.parts:
            raise queue.no_card(gpu_class)
        raise _bad_count(ask.count, gpu_class, there, "there are")
    if ask.nodes > 1:
        _check_nodes(ask, gpu_class, snapshot)
    if ask.wanted is not None and ask.wanted <= 0:
        raise GPULeaseError(
            "bad_duration",
            f"A lease of {ask.wanted:g} seconds is not valid.",
            next_step="Ask for a positive length, for example --for 30m.",
            numbers={"seconds": ask.wanted},
        )
    _check_needs(ask, gpu_class, snapshot, pools)
    return gpu_class


def _check_min_count(ask: Ask, least: int) -> None:
    """Refuse a least number of GPUs that is none, and one of several nodes: their parts are equal.

    Fewer parts would be another program: its ranks are numbered when it starts.
    """
    if 1 <= least <= ask.count and ask.nodes == 1:
        return
    raise GPULeaseError(
        "bad_count",
        "A request for several nodes is all or nothing."
        if ask.nodes > 1
        else f"{least} of {say_count(ask.count, 'GPU', 'GPUs')} cannot be the fewest to live with.",
        next_step="Ask without --min-count."
        if ask.nodes > 1
        else f"Name a --min-count from 1 to {ask.count}.",
        numbers={"asked": ask.count, "min_count": least},
        status=422,
    )


def _check_nodes(ask: Ask, gpu_class: GPUClass, snapshot: Snapshot) -> None:
    """Refuse several nodes where they cannot be had, and GPUs that cannot be divided equally."""
    numbers = {"count": ask.count, "nodes": ask.nodes}
    if not snapshot.several_nodes:
        raise GPULeaseError(
            "bad_nodes",
            "The GPUs of one request are of one machine here.",
            next_step="Ask for several GPUs without --nodes: --count 4. On Kubernetes an admin can"
            " allow several nodes: severalNodes.enabled of gpulease's chart.",
            numbers=numbers,
        )
    if gpu_class.queue is not None and gpu_class.queue.engine is QueueEngine.KAI:
        raise GPULeaseError(
            "bad_nodes",
            f"KAI's queue admits what waits for class {gpu_class.name}, pod by pod: a request there"
            " is of one machine.",
            next_step="Ask without --nodes, or for another class.",
            numbers=numbers,
        )
    if ask.count % ask.nodes:
        fewer, more = ask.count - ask.count % ask.nodes, ask.count + -ask.count % ask.nodes
        raise GPULeaseError(
            "bad_nodes",
            f"{say_count(ask.count, 'GPU', 'GPUs')} cannot be divided equally among {ask.nodes}"
            " nodes: the count is that of all nodes together.",
            next_step=f"Ask for {fewer} or {more}." if fewer else f"Ask for {more}.",
            numbers=numbers,
        )


def _check_needs(ask: Ask, gpu_class: GPUClass, snapshot: Snapshot, pools: list[str]) -> None:
    """Refuse needs that cannot be read, or that no machine here can ever meet."""
    try:
        wanted = str(fitting.parse_needs(ask.needs))
    except ValueError as error:
        raise GPULeaseError(
            "bad_needs",
            str(error),
            next_step=fitting.NEEDS_FORM,
            numbers={"needs": ask.needs},
        ) from None
    # Of what a node that is not there yet would have nothing is known.
    grows = snapshot.grows and any(pool in snapshot.policy.elastic for pool in pools)
    if not wanted or not snapshot.capacity_known or grows:
        return
    names = (gpu_class.name, *gpu_class.fallback)
    there = [device for device in snapshot.devices if device.pool in pools]
    good = [device for device in there if any(suits(name, device, wanted) for name in names)]
    if not room(good, ask.count, ask.nodes):
        most = max((device.memory for device in there), default=0)
        raise GPULeaseError(
            "bad_needs",
            f"No machine has {say_count(ask.count, 'GPU', 'GPUs')} of class {gpu_class.name!r} with"
            f" {wanted}.",
            next_step=f"Ask for less: the most memory is {format_size(most)}."
            if most
            else "Ask for another class.",
            numbers={"needs": wanted, "count": ask.count},
        )


def _bad_count(count: int, gpu_class: GPUClass, most: int, what: str) -> GPULeaseError:
    fewer = "Ask for 1." if most == 1 else f"Ask for 1 to {most}."
    return GPULeaseError(
        "bad_count",
        f"{count} GPUs of class {gpu_class.name!r} were asked for; {what} {most}.",
        next_step=fewer if most else "Ask an admin when GPUs will be there.",
        numbers={"asked": count, "max": most},
        status=422,
    )


def _other_lease(lease: Lease, gpu_class: GPUClass) -> GPULeaseError:
    return GPULeaseError(
        "other_lease",
        f"This server already has a lease or request for {queue.amount(lease)}.",
        next_step=f"Return it first (%gpu return), then ask for {gpu_class.name!r} again.",
        numbers={"lease": lease.id},
    )


def _goes_on(lease: Lease, snapshot: Snapshot) -> bool:
    """Whether a lease is there for its holder's cells: it does not leave, or only changes."""
    if lease.state is not LeaseState.DRAINING:
        return True
    return lease.becomes is not None and not lease.is_over(snapshot.now)


def _can_be_called_back(lease: Lease, snapshot: Snapshot) -> bool:
    """Under pressure a drain continues: this GPU is already promised to somebody."""
    if lease.end_reason_wanted not in REVOCABLE:
        return False
    pool = queue.pool_of(snapshot, lease)
    bounds = limits.Limits.of(snapshot)
    return not any(
        request.id == lease.nominated_for
        or (
            queue.pool_of(snapshot, request) == pool
            and not queue.stands_back(request, snapshot)
            and limits.kept_waiting(request, snapshot.now, bounds) is None
        )
        for request in queue.waiting(snapshot)
    )


def _check_queue(ask: Ask, snapshot: Snapshot) -> None:
    own = queue.waiting_of(snapshot).get(ask.user, 0)
    if own >= snapshot.policy.waiting_per_user:
        raise GPULeaseError(
            "too_many_waiting",
            counted(
                "{user} already has {n} waiting request, the limit for one person.",
                "{user} already has {n} waiting requests, the limit for one person.",
                own,
                user=ask.user,
            ),
            next_step=Text("Withdraw one of them, or wait until one has started."),
            numbers={"waiting": own, "max": snapshot.policy.waiting_per_user},
        )
    length = len(queue.waiting(snapshot))
    if length >= snapshot.policy.queue_max:
        raise GPULeaseError(
            "queue_full",
            counted(
                "The queue is full: {n} request waits.",
                "The queue is full: {n} requests wait.",
                length,
            ),
            next_step=Text("Try again in a few minutes."),
            numbers={"waiting": length, "max": snapshot.policy.queue_max},
        )


def _new(
    ask: Ask,
    gpu_class: GPUClass,
    project: str,
    lease_id: str,
    ticket: tuple[datetime, int],
    *,
    now: datetime,
) -> Lease:
    return Lease(
        id=lease_id,
        user=ask.user,
        server=ask.server,
        gpu_class=gpu_class.name,
        count=ask.count,
        ticket=ticket,
        created=now,
        state_since=now,
        kernel_id=ask.kernel_id,
        origin=ask.origin,
        groups=ask.groups,
        project=project,
        wanted=ask.wanted,
        in_quota_only=ask.in_quota_only,
        batch=ask.batch,
        needs=str(fitting.parse_needs(ask.needs)),
        nodes=ask.nodes,
        min_count=ask.min_count if ask.min_count is not None and ask.min_count < ask.count else 0,
        card_parts=gpu_class.card_parts,
        steps=ask.steps,
        server_ready=ask.server_ready,
    )
