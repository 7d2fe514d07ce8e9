"""What another policy would mean, for whom.

``at_once`` plans the same snapshot under both: sentences about running leases and waiting requests.
``audience`` says what it means for everybody later.  It names what people notice: what they may ask
for, when a GPU leaves, what they and their project may hold and spend.  Every member that differs,
felt or not, stands in ``document.edit.differences``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from gpulease.policy.calendar.occurrences import Closure
from gpulease.policy.calendar.reservation import GroupTerms, ReservationTerms
from gpulease.policy.explanation.reasons import WAITING
from gpulease.policy.gpu_fractions import percent
from gpulease.policy.model import (
    End,
    GPUClass,
    Lease,
    LeaseState,
    PolicyDocument,
    Snapshot,
    Start,
    TimeOuts,
    Wait,
)
from gpulease.policy.planner import plan
from gpulease.policy.projects import AtZero, Budget, Project
from gpulease.policy.queue import waiting
from gpulease.policy.reclaim.reclaim_candidates import why_idle
from gpulease.policy.units import at_midnight, say_count, say_day, say_duration
from gpulease.texts import Text, counted

#: Names of people in one sentence; more are counted.
_NAMED = 5


def at_once(snapshot: Snapshot, policy: PolicyDocument) -> list[str]:
    """Return a sentence for each kind of thing that would happen now; empty where nothing would.

    No lease ends by a change alone: what counts as unused gets its full warning.
    """
    after = replace(snapshot, policy=policy)
    return [*_running(snapshot, after), *_waiting(snapshot, after)]


def warned_by(snapshot: Snapshot, policy: PolicyDocument) -> list[Lease]:
    """Return the active leases that count as unused under a policy and do not today.

    A lease is under pressure where somebody waits for its pool.
    """
    after = replace(snapshot, policy=policy)
    pressed, pressed_after = _under_pressure(snapshot), _under_pressure(after)
    return [
        lease
        for lease in snapshot.leases
        if lease.state is LeaseState.ACTIVE
        and why_idle(after, lease, lease.gpu_class in pressed_after)
        and not why_idle(snapshot, lease, lease.gpu_class in pressed)
    ]


def _running(before: Snapshot, after: Snapshot) -> Iterator[str]:
    warned = warned_by(before, after.policy)
    if warned:
        yield counted(
            "Warned now: {n} lease counts as unused under it ({who}).",
            "Warned now: {n} leases count as unused under it ({who}).",
            len(warned),
            who=_who(warned),
        )
    gone = [
        lease
        for lease in before.leases
        if lease.state not in (LeaseState.QUEUED, LeaseState.ENDED)
        and lease.gpu_class in before.policy.by_name
        and lease.gpu_class not in after.policy.by_name
    ]
    if gone:
        yield Text(
            "Running leases of a class that would be gone keep their GPUs ({who}).", who=_who(gone)
        )


def _waiting(before: Snapshot, after: Snapshot) -> Iterator[str]:
    now, then = _outcomes(before), _outcomes(after)
    known = {request.id: request for request in waiting(before)}

    def those(kind: str, *, anew: bool = True) -> list[Lease]:
        first, second = (then, now) if anew else (now, then)
        return [known[k] for k, v in first.items() if v == kind and second.get(k) != kind]

    for requests, said in (
        (those("start"), Text("Served now")),
        (those("start", anew=False), Text("Not served now")),
        (those("end"), Text("Refused now, for the class would be gone")),
    ):
        if requests:
            yield counted(
                "{said}: {n} request ({who}).",
                "{said}: {n} requests ({who}).",
                len(requests),
                said=said,
                who=_who(requests),
            )
    for reason in sorted({v for v in then.values() if v not in ("start", "end")}):
        others = [x for x in those(reason) if now.get(x.id) != "start"]
        # Reasons with numbers in them are said of one person; here they are said of several.
        if others and "{" not in (sentence := WAITING.get(reason, ("", ""))[0]) and sentence:
            yield Text(
                "Waiting for another reason ({who}): {why}", who=_who(others), why=Text(sentence)
            )


def _outcomes(snapshot: Snapshot) -> dict[str, str]:
    """Return what a plan makes of each waiting request: "start", "end" or why it waits."""
    found = {request.id: request.reason for request in waiting(snapshot)}
    for action in plan(snapshot):
        if action.lease_id not in found:
            continue
        if isinstance(action, Start):
            found[action.lease_id] = "start"
        elif isinstance(action, End):
            found[action.lease_id] = "end"
        elif isinstance(action, Wait):
            found[action.lease_id] = action.reason
    return found


def _who(leases: Sequence[Lease]) -> str:
    names = list(dict.fromkeys(sorted(lease.user for lease in leases)))
    few = ", ".join(names[:_NAMED])
    more = len(names) - _NAMED
    return Text("{names} and {n} more", names=few, n=more) if more > 0 else few


def _under_pressure(snapshot: Snapshot) -> frozenset[str]:
    """Return the classes of leases for whose pool somebody waits."""
    pools = {each.name: each.pool for each in snapshot.policy.classes}
    wanted = {
        pools.get(each.gpu_class) for each in snapshot.leases if each.state is LeaseState.QUEUED
    }
    held = {each.gpu_class for each in snapshot.leases}
    return frozenset(name for name in held if pools.get(name) in wanted)


def of_reservations(old: ReservationTerms, new: ReservationTerms) -> Iterator[str]:
    """Yield a sentence for each thing that changes for those who reserve, and for their groups."""
    for name, said in (
        ("lead", "GPUs are made free {new} before a lab, not {old}."),
        ("grace", "a seat that nobody takes is lent to others after {new}, not {old}."),
        ("advance", "they may reserve {new} ahead, not {old}."),
        ("longest", "a lab may last {new}, not {old}."),
        ("extension", "a lab that is open may be prolonged by {new}, not {old}."),
        ("extra_time", "one person may be given {new} of extra time, not {old}."),
    ):
        was, will = getattr(old, name), getattr(new, name)
        if was != will:
            yield "Instructors: " + said.format(old=say_duration(was), new=say_duration(will))
    if old.gpu_hours != new.gpu_hours:
        yield (
            f"Instructors: a group may have {new.gpu_hours:g} GPU-hours reserved ahead, not"
            f" {old.gpu_hours:g}."
        )
    if old.windows != new.windows:
        windows = say_count(new.windows, "window", "windows")
        yield f"Instructors: a group may have {windows} ahead, not {old.windows}."
    if (old.idle.least, old.idle.most) != (new.idle.least, new.idle.most):
        yield (
            "Instructors: a lab's own idle time-out may be from"
            f" {say_duration(new.idle.least)} to {say_duration(new.idle.most)}."
        )
    if old.classes != new.classes:
        yield f"Instructors: they may reserve {', '.join(new.classes) or 'every class'}."
    yield from _closures(old, new)
    yield from _groups(old, new)


def _closures(old: ReservationTerms, new: ReservationTerms) -> Iterator[str]:
    for each in (closure for closure in new.closures if closure not in old.closures):
        yield (
            f"Nobody has a lab {_days(each)}: windows that are reserved then go, but for one that"
            " has begun."
        )
    for each in (closure for closure in old.closures if closure not in new.closures):
        yield (
            f"There may be labs again {_days(each)}: windows that went for it come back where they"
            " still fit."
        )


def _days(closure: Closure) -> str:
    first, last = say_day(at_midnight(closure.first)), say_day(at_midnight(closure.last))
    when = f"on {first}" if closure.first == closure.last else f"from {first} to {last}"
    return f"{when} ({closure.title})" if closure.title else when


def _groups(old: ReservationTerms, new: ReservationTerms) -> Iterator[str]:
    was, will = dict(old.groups), dict(new.groups)
    for group in dict.fromkeys([*was, *will]):
        yield from _group(group, was.get(group, GroupTerms()), will.get(group, GroupTerms()))


def _group(group: str, was: GroupTerms, will: GroupTerms) -> Iterator[str]:
    for person in (each for each in will.managers if each not in was.managers):
        yield f"{person}: may reserve for {group}, see its leases and end them."
    for person in (each for each in was.managers if each not in will.managers):
        yield f"{person}: may no longer reserve for {group}, see its leases and end them."
    who = f"Instructors of {group}"
    if was.classes != will.classes:
        what = "what all may" if will.classes is None else ", ".join(will.classes) or "nothing"
        yield f"{who}: they may reserve {what}."
    if was.gpu_hours != will.gpu_hours:
        hours = "as all" if will.gpu_hours is None else f"{will.gpu_hours:g} GPU-hours"
        yield f"{who}: the group may have reserved {hours} ahead."
    if was.windows != will.windows:
        most = "as all" if will.windows is None else say_count(will.windows, "window", "windows")
        yield f"{who}: the group may have {most} ahead."
    if was.advance != will.advance:
        early = "as all" if will.advance is None else f"{say_duration(will.advance)} ahead"
        yield f"{who}: they may reserve {early}."
    if was.image != will.image:
        image = f"the image {will.image}" if will.image else "no image of the course's own"
        yield f"Members of {group}: who starts on one of its seats gets {image}."


_TIME_OUTS: Final[Mapping[str, str]] = {
    "idle": "an unused GPU is warned of after {new}, not {old}.",
    "idle_under_pressure": "an unused GPU that somebody waits for is warned of after {new}, not"
    " {old}.",
    "quiet": "a GPU whose cell runs without using it is warned of after {new}, not {old}.",
    "warning": "a warning comes {new} before the GPU leaves, not {old}.",
    "warm_up": "a new lease is left in peace for {new}, not {old}.",
    "keep": "a click on Keep lasts {new}, not {old}.",
    "keeps": "Keep may be pressed {new}, not {old}.",
    "hard_length": "a lease that is granted from now on lasts {new} at most, not {old}.",
    "minimum_runtime": "a lease is safe from those with a better right for {new}, not {old}.",
    "claim": "a GPU that nobody takes up goes on after {new}, not {old}.",
    "busy_max": "use that only the notebook reports counts for {new}, not {old}.",
}
_LIMITS: Final[Mapping[str, tuple[str, str, str]]] = {
    "leases_per_server": ("one notebook server may have", "lease", "leases"),
    "leases_per_user": ("one person may have", "lease", "leases"),
    "waiting_per_user": ("one person may have", "waiting request", "waiting requests"),
    "queue_max": ("the queue may hold", "request", "requests"),
    "runs_per_user": ("one person may have", "notebook run at once", "notebook runs at once"),
}


def audience(before: PolicyDocument, after: PolicyDocument) -> list[str]:
    """Return a sentence for each thing that changes for somebody; empty where nothing does."""
    return [
        *_classes(before, after),
        *_pauses(before, after),
        *_time_outs("Everybody", before.time_outs, after.time_outs),
        *_limits(before, after),
        *_projects(before, after),
        *of_reservations(before.reservations, after.reservations),
    ]


def _classes(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    old, new = before.by_name, after.by_name
    for name in (each for each in old if each not in new):
        yield (
            f"Nobody can ask for class {name} any more: who waits for it is refused, who has a GPU"
            " of it keeps it."
        )
    for name in (each for each in new if each not in old):
        may = [each.name for each in after.projects.leaves if name in each.classes]
        closed = all(each.classes for each in after.projects.leaves) and after.projects.leaves
        who = f"Members of {', '.join(may)}" if closed and may else "Everybody"
        yield f"{who} can ask for class {name} (pool {new[name].pool})."
    if before.default_class != after.default_class:
        yield f"Who names no class gets {after.default_class}, not {before.default_class}."
    same = set(_time_outs("Everybody", before.time_outs, after.time_outs))
    for name in (each for each in new if each in old):
        whose = f"Who has class {name}"
        yield from _class(old[name], new[name])
        for said in _time_outs("Everybody", old[name].time_outs, new[name].time_outs):
            if said not in same:
                yield said.replace("Everybody", whose, 1)


def _class(old: GPUClass, new: GPUClass) -> Iterator[str]:
    if old.price != new.price:
        yield (
            f"Who is granted class {new.name} from now on pays {new.price:g} GPU-hours for an hour"
            f" of one GPU, not {old.price:g}."
        )
    if old.max_count != new.max_count:
        most = say_count(new.max_count, "GPU", "GPUs")
        yield f"Who asks for class {new.name} may have {most} at once, not {old.max_count}."
    if (old.parts, old.card_parts) != (new.parts, new.card_parts):
        yield f"Who asks for class {new.name} gets {_share(new)}, not {_share(old)}."
    if old.steps != new.steps:
        steps = " or ".join(f"{percent(each, new.card_parts)}%" for each in new.steps)
        what = f"can go on with {steps} of the card" if steps else "gives all of it back"
        yield f"Who is asked for a part of class {new.name} {what}."
    if old.pool != new.pool:
        yield f"Who asks for class {new.name} gets GPUs of pool {new.pool}, not {old.pool}."
    if old.fallback != new.fallback:
        what = f"is served by {', '.join(new.fallback)}" if new.fallback else "waits"
        yield f"Who asks for class {new.name} where it is full {what}."


def _share(gpu_class: GPUClass) -> str:
    if not gpu_class.parts:
        return "whole GPUs"
    return f"{percent(gpu_class.parts, gpu_class.card_parts)}% of a card"


def _pauses(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    was = {each.name for each in before.pools if each.paused}
    for pool in after.pools:
        if pool.paused and pool.name not in was:
            yield f"Who waits for pool {pool.name} goes on waiting: it is paused."
        if not pool.paused and pool.name in was:
            yield f"Who waits for pool {pool.name} is served again: it is paused no more."


def _time_outs(who: str, old: TimeOuts, new: TimeOuts) -> Iterator[str]:
    for name in (each.name for each in fields(TimeOuts) if each.name in _TIME_OUTS):
        was, will = getattr(old, name), getattr(new, name)
        if was != will:
            show: Callable[[Any], str] = _times if name == "keeps" else say_duration
            yield f"{who}: " + _TIME_OUTS[name].format(old=show(was), new=show(will))


def _limits(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    for name, (may, one, many) in _LIMITS.items():
        was, will = getattr(before, name), getattr(after, name)
        if was != will:
            yield f"Everybody: {may} {say_count(will, one, many)}, not {was}."


def _projects(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    old, new = before.projects.by_name, after.projects.by_name
    for name in (each for each in old if each not in new):
        yield f"{_members(old[name])}: project {name} is gone; they count among everybody else."
    for name, project in new.items():
        if name not in old:
            yield f"{_members(project)}: they belong to a new project, {name}."
        yield from _project(before, after, name)


def _project(before: PolicyDocument, after: PolicyDocument, name: str) -> Iterator[str]:
    new = after.projects.by_name[name]
    old = before.projects.by_name.get(name, Project(name))
    who = _members(new)
    for pool in (each.name for each in after.pools):
        was, will = old.share(pool), new.share(pool)
        if was.guarantee != will.guarantee:
            own = say_count(will.guarantee, "GPU", "GPUs")
            yield f"{who}: {own} of pool {pool} guaranteed, not {was.guarantee}."
        if was.limit != will.limit:
            yield f"{who}: {_most(will.limit)} of pool {pool} at once, not {_bare(was.limit)}."
    if old.weight != new.weight:
        yield f"{who}: weight {new.weight:g} beside the others, not {old.weight:g}."
    if old.members.limit != new.members.limit:
        yield f"{who}: {_most(new.members.limit)} each, not {_bare(old.members.limit)}."
    if old.classes != new.classes:
        yield f"{who}: they may ask for {', '.join(new.classes) or 'every class'}."
    yield from _budget(who, name, old.budget or Budget(), new.budget or Budget())


def _budget(who: str, project: str, was: Budget, will: Budget) -> Iterator[str]:
    if was.gpu_hours != will.gpu_hours:
        yield f"{who}: {_hours(will.gpu_hours)} together, not {_bare_hours(was.gpu_hours)}."
    if was.each != will.each:
        yield f"{who}: {_hours(will.each)} each, not {_bare_hours(was.each)}."
    named = dict.fromkeys([*dict(was.people), *dict(will.people)])
    for person in (each for each in named if was.of(each) != will.of(each)):
        had = _bare_hours(was.of(person))
        yield f"{person} in {project}: {_hours(will.of(person))}, not {had}."
    if not (will.gpu_hours is None and will.each is None and not will.people):
        yield from _periods(who, was, will)


def _periods(who: str, was: Budget, will: Budget) -> Iterator[str]:
    if (was.first, was.last, was.zone) != (will.first, will.last, will.zone):
        if will.first is not None and will.last is not None:
            when = f"from {say_day(at_midnight(will.first))} to {say_day(at_midnight(will.last))}"
        else:
            when = "each week from Monday on"
        yield f"{who}: the budget is for what is used {when} ({will.zone})."
    if was.at_zero is not will.at_zero:
        ends = will.at_zero is AtZero.END
        what = "is warned and ends" if ends else "goes on while nobody else wants the GPU"
        yield f"{who}: who has nothing left of the budget {what}."


def _members(project: Project) -> str:
    if project.everyone:
        return "Who is in no other project"
    if project.group:
        return f"Members of {project.title or project.name} (group {project.group})"
    return f"Everybody in department {project.title or project.name}"


def _most(limit: int | None) -> str:
    if limit is None:
        return "as many GPUs as are free"
    return f"at most {say_count(limit, 'GPU', 'GPUs')}"


def _bare(limit: int | None) -> str:
    return "as many as are free" if limit is None else str(limit)


def _hours(hours: float | None) -> str:
    if hours is None:
        return "as many GPU-hours as they like"
    return f"{hours:g} {'GPU-hour' if hours == 1 else 'GPU-hours'}"


def _bare_hours(hours: float | None) -> str:
    return "as many as they like" if hours is None else f"{hours:g}"


def _times(number: int) -> str:
    return say_count(number, "time", "times")
