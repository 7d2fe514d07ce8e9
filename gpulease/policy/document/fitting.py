"""What must fit together in a policy document, beyond the form of each value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gpulease.policy.calendar.reservation import ReservationTerms
from gpulease.policy.catalog import GPUClass, Pool, TimeOuts
from gpulease.policy.document.source import Path, Problem, Source, unknown
from gpulease.policy.forms import FormError
from gpulease.policy.pods import (
    HAMI_SPLIT,
    AskKind,
    MIGStrategy,
    PodAsk,
    Sharing,
    Where,
    hami_whole,
    is_hami,
    resource_of,
    slot_units_of,
)
from gpulease.policy.projects import Budget, Project, Projects
from gpulease.policy.states import EvidenceLevel
from gpulease.sizes import format_duration
from gpulease.texts import Text

Problems = Iterator[Problem]

#: A warning above this (seconds) is rather a mistake than meant.
_LONG_WARNING: Final = 3600.0


def of_time_outs(outs: TimeOuts, source: Source, at: Path) -> Problems:
    """Return what is wrong with the time-outs of the document or of a class."""
    if outs.hard_length < outs.warning:
        message = Text(
            "hard_length ({length}) is shorter than the warning ({warning}): every lease would "
            "be warned at once.",
            length=format_duration(outs.hard_length),
            warning=format_duration(outs.warning),
        )
        yield Problem(
            (*at, "hard_length"), message, Text("Make hard_length longer or warning shorter.")
        )
    if (*at, "idle_under_pressure") in source and outs.idle_under_pressure > outs.idle:
        message = Text(
            "idle_under_pressure ({time}) is longer than idle ({idle}), which counts then.",
            time=format_duration(outs.idle_under_pressure),
            idle=format_duration(outs.idle),
        )
        step = Text("Write for example {idle}.", idle=format_duration(outs.idle))
        yield Problem((*at, "idle_under_pressure"), message, step, level="caution")
    if (*at, "warning") not in source:
        return
    if outs.warning == 0:
        message = Text(
            "With a warning of 0s a GPU is released without any notice, and nobody can press Keep."
        )
        yield Problem((*at, "warning"), message, Text("Write for example 60s."), level="caution")
    elif outs.warning > _LONG_WARNING:
        message = Text(
            "A GPU that will be released is held for another {time} first.",
            time=format_duration(outs.warning),
        )
        step = Text("Write for example 60s; who needs longer can press Keep.")
        yield Problem((*at, "warning"), message, step, level="caution")


#: A kind's own keys; the others may stand in every section ``pod``.
_OWN: Final[Mapping[AskKind, tuple[str, ...]]] = {
    AskKind.DEVICE_PLUGIN: ("resource",),
    AskKind.SHARED: ("resource", "sharing", "several_shares", "slot_units", "compute_percent"),
    AskKind.MIG: ("resource", "profile", "strategy"),
    AskKind.DRA: ("device_class", "driver", "profile"),
    AskKind.EXTRA: ("resource", "amount", "slot_units"),
}
_SOME_OWN: Final = frozenset(key for own in _OWN.values() for key in own)
PRESETS: Final = ("hami", "gpushare")
#: Kinds of which a device that a pod holds is the same one whoever uses it then.
_WARM_KINDS: Final = (AskKind.DEVICE_PLUGIN, AskKind.SHARED, AskKind.MIG)


def pools(all_: tuple[Pool, ...], classes: tuple[GPUClass, ...]) -> Problems:
    """Return what is wrong with the pools."""
    queued = {each.pool for each in classes if each.queue is not None}
    for pool in all_:
        at: Path = ("pools", pool.name)
        if pool.parts == 1:
            message = Text("A card is divided into 2 to {most} parts.", most=100)
            yield Problem((*at, "parts"), message, Text("Write for example `parts: 10`."))
        if pool.elastic is None:
            continue
        if pool.parts:
            message = Text("A pool of parts of cards does not grow by itself.")
            yield Problem((*at, "elastic"), message, Text("Remove `elastic` or `parts`."))
        if pool.elastic.firm > pool.elastic.max:
            message = Text("The pool has {max} devices at most.", max=pool.elastic.max)
            yield Problem(
                (*at, "elastic", "firm"), message, Text("Name no more of them than that.")
            )
        if pool.name in queued:
            message = Text("Pool {pool} grows by the cluster's queue that admits to it.",
                           pool=pool.name)  # fmt: skip
            step = Text("Remove `elastic` here or the classes' queue.")
            yield Problem((*at, "elastic"), message, step)


def gpu_class(own: GPUClass, pool: Pool | None, known: list[str], source: Source) -> Problems:
    """Return what is wrong with one class, apart from other classes."""
    at: Path = ("classes", own.name)
    if (*at, "time_outs") in source:
        yield from of_time_outs(own.time_outs, source, (*at, "time_outs"))
    if own.pod is not None:
        yield from _preset(source, (*at, "pod"))
        yield from _ask(own.pod, own.max_count, source, (*at, "pod"))
    if own.warm is not None:
        yield from _warm(own.pod or PodAsk(), at)
    if pool is None:
        yield _of_value((*at, "pool"), unknown(own.pool, known))
        return
    extra = own.pod is not None and own.pod.kind is AskKind.EXTRA
    if extra and pool.evidence is not EvidenceLevel.CELLS:
        message = Text(
            "The use of a share cannot be measured by itself: pool {pool} needs evidence level "
            "cells.",
            pool=pool.name,
        )
        step = Text("Write `evidence: cells` at pool {pool}.", pool=pool.name)
        yield Problem((*at, "pod"), message, step)
    yield from _in_parts(own, pool, source, at) if pool.parts else _in_whole(pool, source, at)


def _of_value(path: Path, wrong: FormError) -> Problem:
    message = Text("{key}: {wrong}", key=next(x for x in reversed(path) if isinstance(x, str)),
                   wrong=wrong.message)  # fmt: skip
    return Problem(path, message, wrong.next_step, of_value=True)


def _preset(source: Source, at: Path) -> Problems:
    named = [name for name in PRESETS if (*at, name) in source]
    written = [str(path[-1]) for path in source.keys if path[:-1] == at]
    for key in written if named else ():
        if key in named[1:] or key == "kind" or (key in _SOME_OWN and key != "slot_units"):
            both = {"preset": named[0], "key": key}
            message = Text("{preset} is a whole ask; {key} does not go with it.", **both)
            yield Problem((*at, key), message, Text("Remove {key} or {preset}.", **both))


def _ask(ask: PodAsk, max_count: int, source: Source, at: Path) -> Problems:
    if not any((*at, name) in source for name in PRESETS):
        for key in sorted(_SOME_OWN.difference(_OWN[ask.kind])):
            if (*at, key) in source:
                message = Text("{key} means nothing for the kind {kind}.", key=key, kind=ask.kind)
                keys = ", ".join(_OWN[ask.kind])
                step = Text("Remove it; the kind's own keys are: {keys}.", keys=keys)
                yield Problem((*at, key), message, step)
    for key, wrong, said, fix in _asked(ask, max_count):
        if wrong:
            yield Problem((*at, *key.split(".")), said, fix)


def _asked(ask: PodAsk, max_count: int) -> Iterator[tuple[str, bool, str, str]]:
    """Yield what can be wrong within an ask: its key, whether it is wrong, sentence, next step."""
    several, shared = max_count > 1, ask.kind is AskKind.SHARED
    yield from _bounds(ask.where)
    mixed = ask.kind is AskKind.MIG and ask.strategy is MIGStrategy.MIXED
    extra = ask.kind is AskKind.EXTRA and not ask.resource
    yield (
        "kind",
        mixed and not ask.profile and not ask.resource,
        Text("A MIG class lacks its profile."),
        Text("Write for example `profile: 1g.10gb`."),
    )
    yield (
        "kind",
        extra and not ask.extra_resources,
        Text("A class of kind extra asks for nothing."),
        Text("Name `resource` or `extra_resources`."),
    )
    yield (
        "kind",
        extra and several,
        Text("Without a resource that is counted, one request can have one device only."),
        Text("Name `resource`, or set the class's max_count to 1."),
    )
    yield (
        "amount",
        ask.amount > 1 and several,
        Text(
            "{n} of a resource is a part of one card; more of it is still one card.", n=ask.amount
        ),
        Text("Set the class's max_count to 1."),
    )
    yield (
        "compute_percent",
        ask.compute_percent > 100,
        Text("{key} is more than one card.", key="compute_percent"),
        Text("Write at most 100."),
    )
    bounded = ask.compute_percent > 0 and shared and ask.sharing is not Sharing.MPS
    yield (
        "compute_percent",
        bounded,
        Text("Only MPS limits how much compute a share may use."),
        Text("Write `sharing: mps`, or remove compute_percent."),
    )
    yield (
        "kind",
        shared and several and not ask.several_shares,
        Text(
            "Two shares of one card give no more compute than one, and a device plugin with "
            "failRequestsGreaterThanOne refuses them."
        ),
        Text("Set the class's max_count to 1, or `several_shares: true` if yours allows them."),
    )


def _bounds(where: Where) -> Iterator[tuple[str, bool, str, str]]:
    below = Text("{key} is below {other}.", key="memory_max", other="memory_min")
    yield (
        "where.memory_max",
        0 < where.memory_max < where.memory_min,
        below,
        Text("Exchange the two."),
    )
    below = Text("{key} is below {other}.", key="compute_max", other="compute_min")
    wrong = bool(where.compute_min and where.compute_max) and _version(
        where.compute_max
    ) < _version(where.compute_min)
    yield "where.compute_max", wrong, below, Text("Exchange the two.")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _warm(ask: PodAsk, at: Path) -> Problems:
    """Return what keeps pods of such a class from standing ready for anybody."""
    at = (*at, "warm")
    if not ask.image:
        message = Text(
            "A pod that stands ready needs an image before it is known whose it will be."
        )
        yield Problem(at, message, Text("Name it: `pod: {image: ...}`."))
    if ask.queue is not None:
        message = Text("What a cluster's queue admits cannot stand ready for somebody else.")
        yield Problem(at, message, Text("Remove `warm` here or the queue."))
    elif ask.kind not in _WARM_KINDS:
        message = Text("Pods of kind {kind} cannot stand ready.", kind=ask.kind.value)
        yield Problem(at, message, Text("Whole cards, shares of cards and MIG slices can."))


def _in_whole(pool: Pool, source: Source, at: Path) -> Problems:
    for key in ("parts", "steps"):
        if (*at, key) in source:
            message = Text("The cards of pool {pool} have no parts.", pool=pool.name)
            step = Text("Write for example `parts: 10` at pool {pool}.", pool=pool.name)
            yield Problem((*at, key), message, step)


def _in_parts(own: GPUClass, pool: Pool, source: Source, at: Path) -> Problems:
    """Return what of a class does not go with parts of cards."""
    if own.parts > pool.parts:
        message = Text("A card of this pool has {parts} parts.", parts=pool.parts)
        step = Text("Write at most {parts}.", parts=pool.parts)
        yield Problem((*at, "parts"), message, step)
    for n, fewer in enumerate(own.steps):
        if fewer >= (own.parts or pool.parts):
            wrong = Text(
                "a step is a whole number of parts, fewer than {parts}.",
                parts=own.parts or pool.parts,
            )
            fix = Text("Correct the value of {key}.", key="steps")
            yield _of_value((*at, "steps", n), FormError(wrong, fix))
    if own.max_count > 1:
        message = Text("A lease of parts has one card.")
        yield Problem((*at, "max_count"), message, Text("Remove `max_count`."))
    if own.warm is not None:
        message = Text("No pods stand ready for parts of cards.")
        yield Problem((*at, "warm"), message, Text("Remove `warm`."))
    if own.pod is not None:
        counted = (*at, "pod", "slot_units") in source
        yield from _parts_of_pod(own.pod, pool, counted, (*at, "pod"))


def _parts_of_pod(ask: PodAsk, pool: Pool, counted: bool, at: Path) -> Problems:
    hami = Text("Write `pod: {preset}`.", preset="{hami: {}}")
    if ask.queue is not None:
        message = Text("A cluster's queue knows no parts of cards.")
        yield Problem(at, message, Text("Give the class a pool of whole devices."))
    if not is_hami(ask):
        message = Text(
            "Nothing keeps to parts of a card with kind {kind}: time slices have no size, and the "
            "replicas of MPS are all alike.",
            kind=ask.kind.value,
        )
        yield Problem(at, message, hami)
    elif not hami_whole(ask):
        yield Problem(at, Text("How much of a card it is say the class's parts."), hami)
    elif HAMI_SPLIT % pool.parts and not counted:
        message = Text("HAMi shows a card as {split} devices, not {parts}.", split=HAMI_SPLIT,
                       parts=pool.parts)  # fmt: skip
        step = Text(
            "Write 2, 5 or 10 `parts` at the pool, or `slot_units`, the number of units in a part."
        )
        yield Problem(at, message, step)


def classes_together(classes: tuple[GPUClass, ...]) -> Problems:
    """Return what is wrong between classes: fallbacks that are none, pools counted in two ways."""
    by_name = {each.name: each for each in classes}
    admits = {each.pool: each.queue is None for each in classes}
    counted: dict[str, tuple[str, int]] = {}
    for own in classes:
        at: Path = ("classes", own.name)
        yield from _fallback(own, by_name, (*at, "fallback"))
        if admits[own.pool] is not (own.queue is None):
            message = Text("In pool {pool} both gpulease and a cluster's queue would admit.",
                           pool=own.pool)  # fmt: skip
            yield Problem(
                (*at, "pool"), message, Text("Give classes with a queue a pool of their own.")
            )
        ask = own.pod or PodAsk()
        unit = (resource_of(ask) or ask.kind.value, slot_units_of(ask))
        if counted.setdefault(own.pool, unit) != unit:
            message = Text(
                "Pool {pool} is counted in {other}, this class in {unit}: one pool has one layout.",
                pool=own.pool,
                other=_unit(counted[own.pool]),
                unit=_unit(unit),
            )
            step = Text("Give the class a pool of its own, or the same resource and slot_units.")
            yield Problem((*at, "pod"), message, step)


def _fallback(own: GPUClass, by_name: Mapping[str, GPUClass], at: Path) -> Problems:
    for name in own.fallback:
        other = by_name.get(name)
        if other is None or other is own or other.queue or own.fallback.count(name) > 1:
            message = Text("'{other}' cannot be a fallback of {name}.", other=name, name=own.name)
            step = Text("Name other classes on offer, each once, and none of a cluster's queue.")
            yield Problem(at, message, step)
        elif _shape(other) != _shape(own):
            message = Text(
                "'{other}' does not have the same parts of a card as {name}.",
                other=name,
                name=own.name,
            )
            yield Problem(at, message, Text("Name classes with the same parts and steps."))
    if own.queue is not None and own.fallback:
        message = Text("What waits in a cluster's queue is served by no other class.")
        yield Problem(at, message, Text("Remove the fallback or the queue."))


def _shape(own: GPUClass) -> tuple[int, int, tuple[int, ...]]:
    return own.parts, own.card_parts, own.steps


def _unit(counted: tuple[str, int]) -> str:
    resource, slots = counted
    return f"{resource} (slot_units: {slots})" if slots else resource


def reservations(terms: ReservationTerms, classes: list[str], source: Source) -> Problems:
    """Return what is wrong with the terms of reservations."""
    at: Path = ("reservations",)
    if terms.idle.most < terms.idle.least:
        message = Text("The longest idle time-out is shorter than the shortest.")
        yield Problem((*at, "idle", "most"), message, Text("Swap them."))
    yield from _known_classes(terms.classes, classes, (*at, "classes"))
    for group, own in terms.groups:
        yield from _known_classes(own.classes or (), classes, (*at, "groups", group, "classes"))
    # Closures stand in the order of the document, under names that are written there alone.
    names = [path[2] for path in source.keys if path[:2] == (*at, "closures") and len(path) == 3]
    for name, closure in zip(names, terms.closures, strict=False):
        if closure.last < closure.first:
            message = Text("This closure ends before it begins.")
            yield Problem((*at, "closures", name, "to"), message, Text("Swap the two dates."))


def _known_classes(named: tuple[str, ...], classes: list[str], at: Path) -> Problems:
    for n, name in enumerate(named):
        if name not in classes:
            wrong = FormError(Text("there is no class '{name}'.", name=name))
            step = Text("Correct the value of {key}.", key="classes")
            yield _of_value((*at, n), FormError(wrong.message, step))


def projects(all_: Projects, pools: list[str], classes: list[str], source: Source) -> Problems:
    """Return what is wrong with and between projects."""
    parents, seen = {each.parent for each in all_.all}, dict[str, str]()
    for own in all_.all:
        at: Path = ("projects", own.name)
        yield from _project(own, pools, classes, at)
        if own.budget is not None:
            yield from _term(own.budget, source, (*at, "budget"))
        yield from _parent(own, all_, (*at, "parent"))
        if own.name in parents:
            yield from _department(own, source, at)
            continue
        if own.everyone and (*at, "group") in source:
            message = Text("A project of everyone has no group.")
            yield Problem((*at, "group"), message, Text("Leave one of them out."))
        key = "" if own.everyone else own.group or own.name
        if key in seen:
            both = {"one": seen[key], "other": own.name, "group": key}
            message = (
                Text("Projects {one} and {other} are both of group '{group}'.", **both)
                if key
                else Text("Projects {one} and {other} are both of everyone.", **both)
            )
            yield Problem((*at, "group"), message, Text("Give each project a group of its own."))
        seen[key] = own.name


def _project(own: Project, pools: list[str], classes: list[str], at: Path) -> Problems:
    for pool, share in own.pools:
        path = (*at, "pools", pool)
        if pool not in pools:
            message = Text(
                "{what} has no key '{name}'.", what=f"projects.{own.name}.pools", name=pool
            )
            yield Problem(path, message, unknown(pool, pools).next_step)
        if share.limit is not None and share.limit < share.guarantee:
            message = Text("The limit is below the guarantee.")
            yield Problem((*path, "limit"), message, Text("Raise it, or leave it out."))
    yield from _known_classes(own.classes, classes, (*at, "classes"))


def _term(budget: Budget, source: Source, at: Path) -> Problems:
    missing = [key for key in ("from", "to") if (*at, key) not in source]
    if len(missing) == 1:
        message = Text("A term needs both days; {missing} is missing.", missing=missing[0])
        yield Problem((*at, "from"), message, Text("Add {missing}.", missing=missing[0]))
    elif budget.first is not None and budget.last is not None and budget.last < budget.first:
        message = Text("This term ends before it begins.")
        yield Problem((*at, "to"), message, Text("Swap the two days."))


def _parent(own: Project, all_: Projects, at: Path) -> Problems:
    if own.parent and own.parent not in all_.by_name:
        message = Text("There is no project '{name}'.", name=own.parent)
        yield Problem(at, message, Text("Name another project above it."))
    above, found = own.parent, {own.name}
    while above in all_.by_name:
        if above in found:
            message = Text("Project {name} is below itself.", name=own.name)
            yield Problem(at, message, Text("Name another one."))
            return
        found.add(above)
        above = all_.by_name[above].parent


def _department(own: Project, source: Source, at: Path) -> Problems:
    for key in ("group", "everyone", "classes", "members", "people", "budget"):
        if (*at, key) in source:
            message = Text(
                "{name} is the parent of other projects: it has no {key} of its own.",
                name=own.name,
                key=key,
            )
            yield Problem((*at, key), message, Text("Give it to one of its projects."))
