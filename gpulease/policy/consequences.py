"""What another policy would mean, for whom.

``at_once`` plans the same snapshot under both: sentences about running leases and waiting requests.
``audience`` says what it means for everybody later.  It names what people notice: what they may
request, when a GPU is released, what they and their project may hold and spend.  Every member that
differs, noticed or not, stands in ``document.edit.differences``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from gpulease.policy.calendar.occurrences import Closure
from gpulease.policy.calendar.reservation import GroupTerms, ReservationTerms
from gpulease.policy.catalog import percent
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
from gpulease.policy.reasons import WAITING
from gpulease.policy.reclaim.reclaim_candidates import why_idle
from gpulease.sizes import at_midnight, say_day, say_duration
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
        yield Text("Running leases of a removed class keep their GPUs ({who}).", who=_who(gone))


def _waiting(before: Snapshot, after: Snapshot) -> Iterator[str]:
    now, then = _outcomes(before), _outcomes(after)
    known = {request.id: request for request in waiting(before)}

    def those(kind: str, *, anew: bool = True) -> list[Lease]:
        first, second = (then, now) if anew else (now, then)
        return [known[k] for k, v in first.items() if v == kind and second.get(k) != kind]

    for requests, said in (
        (those("start"), Text("Served now")),
        (those("start", anew=False), Text("Not served now")),
        (those("end"), Text("Refused now, as the class is removed")),
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


def _for(who: str, what: str) -> Text:
    return Text("{who}: {what}", who=who, what=what)


def _change(old: Any, new: Any, show: Callable[[Any], str]) -> Mapping[str, str]:
    return {"old": show(old), "new": show(new)}


def _number(number: float) -> str:
    return f"{number:g}"


def _limit(number: float | None) -> str:
    return Text("no limit") if number is None else _number(number)


def _own(show: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return how a term of a group is shown that may be as all have it."""
    return lambda value: Text("as every group") if value is None else show(value)


_TERMS: Final[Mapping[str, Text]] = {
    "lead": Text("GPUs are freed {new} before a session, not {old}."),
    "grace": Text("an unclaimed seat is lent to others after {new}, not {old}."),
    "advance": Text("they may reserve {new} ahead, not {old}."),
    "longest": Text("a session may last {new}, not {old}."),
    "extension": Text("a session in progress may be extended by {new}, not {old}."),
    "extra_time": Text("one person may get {new} of extra time, not {old}."),
}


def of_reservations(old: ReservationTerms, new: ReservationTerms) -> Iterator[str]:
    """Yield a sentence for each thing that changes for those who reserve, and for their groups."""
    for said in _terms(old, new):
        yield _for(Text("Instructors"), said)
    yield from _closures(old, new)
    was, will = dict(old.groups), dict(new.groups)
    for group in dict.fromkeys([*was, *will]):
        yield from _group(group, was.get(group, GroupTerms()), will.get(group, GroupTerms()))


def _terms(old: ReservationTerms, new: ReservationTerms) -> Iterator[Text]:
    for name, said in _TERMS.items():
        was, will = getattr(old, name), getattr(new, name)
        if was != will:
            yield Text(said, **_change(was, will, say_duration))
    if old.gpu_hours != new.gpu_hours:
        hours = _change(old.gpu_hours, new.gpu_hours, _number)
        yield Text("GPU-hours that a group may have reserved ahead: {old} → {new}.", **hours)
    if old.windows != new.windows:
        sessions = _change(old.windows, new.windows, str)
        yield Text("sessions that a group may have ahead: {old} → {new}.", **sessions)
    if (old.idle.least, old.idle.most) != (new.idle.least, new.idle.most):
        bounds = {"least": say_duration(new.idle.least), "most": say_duration(new.idle.most)}
        yield Text("a session's own idle time-out may be {least} to {most}.", **bounds)
    if old.classes != new.classes:
        classes = ", ".join(new.classes) or Text("every class")
        yield Text("they may reserve {classes}.", classes=classes)


def _closures(old: ReservationTerms, new: ReservationTerms) -> Iterator[str]:
    for each in (closure for closure in new.closures if closure not in old.closures):
        yield Text(
            "No sessions {days}: those that are reserved are cancelled, except one in progress.",
            days=_days(each),
        )
    for each in (closure for closure in old.closures if closure not in new.closures):
        yield Text(
            "Sessions are possible again {days}: those that were cancelled for it return where they"
            " still fit.",
            days=_days(each),
        )


def _days(closure: Closure) -> Text:
    first, last = say_day(at_midnight(closure.first)), say_day(at_midnight(closure.last))
    one = closure.first == closure.last
    days = Text("on {day}", day=first) if one else _from_to(first, last)
    return Text("{days} ({title})", days=days, title=closure.title) if closure.title else days


def _from_to(first: Text, last: Text) -> Text:
    return Text("from {first} to {last}", first=first, last=last)


def _group(group: str, was: GroupTerms, will: GroupTerms) -> Iterator[str]:
    for person in (each for each in will.managers if each not in was.managers):
        yield _for(
            person, Text("may reserve for {group}, see its leases and end them.", group=group)
        )
    for person in (each for each in was.managers if each not in will.managers):
        said = Text("may no longer reserve for {group}, see its leases and end them.", group=group)
        yield _for(person, said)
    for said in _terms_of_group(was, will):
        yield _for(Text("Instructors of {group}", group=group), said)
    if was.image != will.image:
        image = Text(
            "a server started on one of its seats gets the image {image}.", image=will.image
        )
        none = Text("a server started on one of its seats gets no course image.")
        yield _for(Text("Members of {names}", names=group), image if will.image else none)


def _terms_of_group(was: GroupTerms, will: GroupTerms) -> Iterator[Text]:
    if was.classes != will.classes:
        every = Text("what every group may") if will.classes is None else Text("nothing")
        yield Text("they may reserve {classes}.", classes=", ".join(will.classes or ()) or every)
    if was.gpu_hours != will.gpu_hours:
        hours = _change(was.gpu_hours, will.gpu_hours, _own(_number))
        yield Text("GPU-hours reserved ahead: {old} → {new}.", **hours)
    if was.windows != will.windows:
        yield Text(
            "sessions ahead: {old} → {new}.", **_change(was.windows, will.windows, _own(str))
        )
    if was.advance != will.advance:
        early = _change(was.advance, will.advance, _own(say_duration))
        yield Text("how early they may reserve: {old} → {new}.", **early)


_TIME_OUTS: Final[Mapping[str, Text]] = {
    "idle": Text("an idle GPU gets its warning after {new}, not {old}."),
    "idle_under_pressure": Text(
        "an idle GPU gets its warning after {new} while others wait, not {old}."
    ),
    "quiet": Text(
        "a GPU whose cell runs without using it gets its warning after {new}, not {old}."
    ),
    "warning": Text("the warning comes {new} before the release, not {old}."),
    "warm_up": Text("a new lease is safe from warnings for {new}, not {old}."),
    "keep": Text("Keep adds {new}, not {old}."),
    "keeps": Text("max. extensions: {old} → {new}."),
    "hard_length": Text("a lease granted from now on lasts at most {new}, not {old}."),
    "minimum_runtime": Text("a lease cannot be preempted for {new}, not {old}."),
    "claim": Text("a GPU that is not claimed is released after {new}, not {old}."),
    "busy_max": Text("use that only the notebook reports counts for {new}, not {old}."),
}
_LIMITS: Final[Mapping[str, Text]] = {
    "leases_per_server": Text("leases of one server: {old} → {new}."),
    "leases_per_user": Text("leases of one person: {old} → {new}."),
    "waiting_per_user": Text("queued requests of one person: {old} → {new}."),
    "queue_max": Text("requests in the queue: {old} → {new}."),
    "runs_per_user": Text("background runs of one person at once: {old} → {new}."),
}


def audience(before: PolicyDocument, after: PolicyDocument) -> list[str]:
    """Return a sentence for each thing that changes for somebody; empty where nothing does."""
    return [
        *_classes(before, after),
        *_pauses(before, after),
        *(_for(Text("Everybody"), said) for said in _general(before, after)),
        *_projects(before, after),
        *of_reservations(before.reservations, after.reservations),
    ]


def _general(before: PolicyDocument, after: PolicyDocument) -> Iterator[Text]:
    yield from _time_outs(before.time_outs, after.time_outs)
    for name, said in _LIMITS.items():
        was, will = getattr(before, name), getattr(after, name)
        if was != will:
            yield Text(said, old=was, new=will)


def _time_outs(old: TimeOuts, new: TimeOuts) -> Iterator[Text]:
    for name in (each.name for each in fields(TimeOuts) if each.name in _TIME_OUTS):
        was, will = getattr(old, name), getattr(new, name)
        if was != will:
            show: Callable[[Any], str] = str if name == "keeps" else say_duration
            yield Text(_TIME_OUTS[name], **_change(was, will, show))


def _classes(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    old, new = before.by_name, after.by_name
    for name in (each for each in old if each not in new):
        yield Text(
            "Class {name} is removed: queued requests for it are refused, its leases keep their"
            " GPUs.",
            name=name,
        )
    for name in (each for each in new if each not in old):
        may = [each.name for each in after.projects.leaves if name in each.classes]
        closed = all(each.classes for each in after.projects.leaves) and after.projects.leaves
        names = Text("Members of {names}", names=", ".join(may))
        said = Text("class {name} (pool {pool}) is new.", name=name, pool=new[name].pool)
        yield _for(names if closed and may else Text("Everybody"), said)
    if before.default_class != after.default_class:
        classes = {"old": before.default_class, "new": after.default_class}
        yield Text("A request that names no class gets {new}, not {old}.", **classes)
    everywhere = set(_time_outs(before.time_outs, after.time_outs))
    for name in (each for each in new if each in old):
        outs = _time_outs(old[name].time_outs, new[name].time_outs)
        own = (each for each in outs if each not in everywhere)
        for said in (*_class(old[name], new[name]), *own):
            yield _for(Text("Class {name}", name=name), said)


def _class(old: GPUClass, new: GPUClass) -> Iterator[Text]:
    if old.price != new.price:
        prices = _change(old.price, new.price, _number)
        yield Text("a new lease pays {new} GPU-hours for an hour of one GPU, not {old}.", **prices)
    if old.max_count != new.max_count:
        yield Text(
            "GPUs of one request: at most {new}, not {old}.", old=old.max_count, new=new.max_count
        )
    if (old.parts, old.card_parts) != (new.parts, new.card_parts):
        yield Text("a request gets {new}, not {old}.", old=_share(old), new=_share(new))
    if old.steps != new.steps:
        steps = " / ".join(f"{percent(each, new.card_parts)}%" for each in new.steps)
        yield (
            Text("a lease that must shrink can keep {steps} of the card.", steps=steps)
            if steps
            else Text("a lease that must shrink is released whole.")
        )
    if old.pool != new.pool:
        yield Text("requests get GPUs of pool {new}, not {old}.", old=old.pool, new=new.pool)
    if old.fallback != new.fallback:
        yield (
            Text("when it is full, requests get {classes}.", classes=", ".join(new.fallback))
            if new.fallback
            else Text("when it is full, requests wait.")
        )


def _share(gpu_class: GPUClass) -> Text:
    if not gpu_class.parts:
        return Text("whole GPUs")
    return Text("{n}% of a card", n=percent(gpu_class.parts, gpu_class.card_parts))


def _pauses(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    was = {each.name for each in before.pools if each.paused}
    for pool in after.pools:
        if pool.paused and pool.name not in was:
            yield Text("Pool {pool} is paused: requests for it wait.", pool=pool.name)
        if not pool.paused and pool.name in was:
            yield Text("Pool {pool} is no longer paused: requests are served.", pool=pool.name)


def _projects(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    old, new = before.projects.by_name, after.projects.by_name
    for name in (each for each in old if each not in new):
        gone = Text("project {name} is removed; they count with everyone else.", name=name)
        yield _for(_members(old[name]), gone)
    for name, project in new.items():
        if name not in old:
            joined = Text("they belong to a new project, {name}.", name=name)
            yield _for(_members(project), joined)
        for said in _project(before, after, name):
            yield _for(_members(project), said)
        yield from _people(old.get(name, Project(name)), project)


def _project(before: PolicyDocument, after: PolicyDocument, name: str) -> Iterator[Text]:
    new = after.projects.by_name[name]
    old = before.projects.by_name.get(name, Project(name))
    for pool in (each.name for each in after.pools):
        was, will = old.share(pool), new.share(pool)
        if was.guarantee != will.guarantee:
            gpus = _change(was.guarantee, will.guarantee, str)
            yield Text("guaranteed GPUs of pool {pool}: {old} → {new}.", pool=pool, **gpus)
        if was.limit != will.limit:
            gpus = _change(was.limit, will.limit, _limit)
            yield Text("GPUs of pool {pool} at once: {old} → {new}.", pool=pool, **gpus)
    if old.weight != new.weight:
        yield Text("weight {old} → {new}.", **_change(old.weight, new.weight, _number))
    if old.members.limit != new.members.limit:
        gpus = _change(old.members.limit, new.members.limit, _limit)
        yield Text("GPUs of each person at once: {old} → {new}.", **gpus)
    if old.classes != new.classes:
        classes = ", ".join(new.classes) or Text("every class")
        yield Text("they may request {classes}.", classes=classes)
    yield from _budget(old.budget or Budget(), new.budget or Budget())


def _budget(was: Budget, will: Budget) -> Iterator[Text]:
    if was.gpu_hours != will.gpu_hours:
        hours = _change(was.gpu_hours, will.gpu_hours, _limit)
        yield Text("GPU-hours together: {old} → {new}.", **hours)
    if was.each != will.each:
        hours = _change(was.each, will.each, _limit)
        yield Text("GPU-hours of each person: {old} → {new}.", **hours)
    if will.gpu_hours is None and will.each is None and not will.people:
        return
    if (was.first, was.last, was.zone) != (will.first, will.last, will.zone):
        when = Text("per week, from Monday on")
        if will.first is not None and will.last is not None:
            when = _from_to(say_day(at_midnight(will.first)), say_day(at_midnight(will.last)))
        yield Text("the budget counts what is used {when} ({zone}).", when=when, zone=will.zone)
    if was.at_zero is not will.at_zero:
        yield (
            Text("when the budget is used up, a lease is warned and ends.")
            if will.at_zero is AtZero.END
            else Text("when the budget is used up, a lease continues until others need its GPU.")
        )


def _people(old: Project, new: Project) -> Iterator[Text]:
    was, will = old.budget or Budget(), new.budget or Budget()
    named = dict.fromkeys([*dict(was.people), *dict(will.people)])
    for person in (each for each in named if was.of(each) != will.of(each)):
        hours = _change(was.of(person), will.of(person), _limit)
        who = Text("{person} in {project}", person=person, project=new.name)
        yield _for(who, Text("GPU-hours: {old} → {new}.", **hours))


def _members(project: Project) -> Text:
    if project.everyone:
        return Text("Everyone else")
    names = project.title or project.name
    if project.group:
        return Text("Members of {names} (group {group})", names=names, group=project.group)
    return Text("Department {names}", names=names)
