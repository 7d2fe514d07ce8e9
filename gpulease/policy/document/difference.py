"""What one policy document would change in another, in words.

Owns the sentences of a dry run.  Refuses to judge whether a change is wise, and to look at leases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from gpulease.policy.document.elastic_section import elastic_tree
from gpulease.policy.document.parts_section import parts_tree
from gpulease.policy.document.pod_section import pod_tree
from gpulease.policy.document.projects_section import projects_tree
from gpulease.policy.document.reservation_section import terms_tree
from gpulease.policy.document.warm_section import warm_tree
from gpulease.policy.model import GPUClass, PolicyDocument, Pool, TimeOuts
from gpulease.policy.pods import PodAsk
from gpulease.policy.units import format_duration, format_size
from gpulease.texts import Text

_COUNTED = frozenset({"keeps"})
_PLAIN = (
    "default_class", "leases_per_server", "leases_per_user", "queue_max", "waiting_per_user",
    "changes_per_minute", "runs_per_user", "batch_wait", "batch_cell", "gang_hold_max",
    "share_harm", "click_runs_cells",
)  # fmt: skip
_DEFAULT = Text("its default")


def differences(before: PolicyDocument, after: PolicyDocument) -> list[str]:
    """Return a sentence for each difference, in the order of the document; empty when equal."""
    return [
        *(
            _set(name, *(_limit(getattr(each, name)) for each in (before, after)))
            for name in _differing(before, after)
        ),
        *_pools({p.name: p for p in before.pools}, {p.name: p for p in after.pools}),
        *_time_outs(before.time_outs, after.time_outs),
        *_classes(before, after),
        *_reservations(before, after),
        *_projects(before, after),
    ]


def _reservations(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    old, new = terms_tree(before.reservations), terms_tree(after.reservations)
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield _set(f"reservations.{key}", old.get(key, _DEFAULT), new.get(key, _DEFAULT))


def _projects(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    old, new = projects_tree(before.projects), projects_tree(after.projects)
    yield from _members_of("shares", old.get("shares", {}), new.get("shares", {}))
    was, will = old.get("projects", {}), new.get("projects", {})
    yield from _came_and_went(Text("project"), was, will)
    for name in (each for each in will if each in was):
        for said in _members_of("", was[name], will[name]):
            yield Text("for project {name}: {said}", name=name, said=said)


def _members_of(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Return a sentence for each value that differs, at whatever depth."""
    for key in dict.fromkeys([*old, *new]):
        was, will = old.get(key, _DEFAULT), new.get(key, _DEFAULT)
        path = f"{name}.{key}" if name else key
        if was == will:
            continue
        if isinstance(was, dict) or isinstance(will, dict):
            deeper = [each if isinstance(each, dict) else {} for each in (was, will)]
            yield from _members_of(path, *deeper)
        else:
            yield _set(path, was, will)


def _differing(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    return (name for name in _PLAIN if getattr(before, name) != getattr(after, name))


def _limit(value: Any) -> Any:
    return format_duration(value) if isinstance(value, float) else value


def _set(name: str, old: Any, new: Any) -> str:
    return Text("set {name} from {old} to {new}", name=name, old=_shown(old), new=_shown(new))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _pools(before: Mapping[str, Pool], after: Mapping[str, Pool]) -> Iterator[str]:
    yield from _came_and_went(Text("pool"), before, after)
    for name in (each for each in after if each in before):
        old, new = before[name], after[name]
        if old.evidence != new.evidence:
            yield _set(
                Text("evidence of pool {pool}", pool=name), old.evidence.value, new.evidence.value
            )
        if old.spare != new.spare:
            yield _set(Text("spare of pool {pool}", pool=name), old.spare, new.spare)
        if old.parts != new.parts:
            yield _set(Text("parts of each card of pool {pool}", pool=name), old.parts, new.parts)
        was, will = elastic_tree(old.elastic), elastic_tree(new.elastic)
        for said in _members_of("", was, will):
            yield Text("for pool {pool}: {said}", pool=name, said=said)


def _came_and_went(
    what: str, before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[str]:
    for name in (each for each in after if each not in before):
        yield Text("add {what} {name}", what=what, name=name)
    for name in (each for each in before if each not in after):
        yield Text("take {what} {name} away", what=what, name=name)


def _classes(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    old = {each.name: each for each in before.classes}
    new = {each.name: each for each in after.classes}
    yield from _came_and_went(Text("class"), old, new)
    everywhere = set(_time_outs(before.time_outs, after.time_outs))
    for name in (each for each in new if each in old):
        yield from _members(name, old[name], new[name])
        for sentence in _time_outs(old[name].time_outs, new[name].time_outs):
            if sentence not in everywhere:
                yield _of_class(name, sentence)


def _of_class(name: str, said: str) -> Text:
    return Text("for class {name}: {said}", name=name, said=said)


def _members(name: str, old: GPUClass, new: GPUClass) -> Iterator[str]:
    for member in ("pool", "title", "max_count", "price", "devices_by"):
        if getattr(old, member) != getattr(new, member):
            yield _of_class(name, _set(member, getattr(old, member), getattr(new, member)))
    if old.memory != new.memory:
        said = _set("memory", format_size(old.memory), format_size(new.memory))
        yield _of_class(name, said)
    if old.fallback != new.fallback:
        said = _set(
            "fallback",
            ", ".join(old.fallback) or Text("none"),
            ", ".join(new.fallback) or Text("none"),
        )
        yield _of_class(name, said)
    if old.pod != new.pod:
        yield from (_of_class(name, said) for said in _pod(old.pod, new.pod))
    for said in _members_of("", parts_tree(old), parts_tree(new)):
        yield _of_class(name, said)
    for said in _members_of("", warm_tree(old.warm), warm_tree(new.warm)):
        yield _of_class(name, said)


def _pod(old: PodAsk | None, new: PodAsk | None) -> Iterator[str]:
    before, after = pod_tree(old or PodAsk()), pod_tree(new or PodAsk())
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key):
            yield _set(f"pod.{key}", before.get(key, _DEFAULT), after.get(key, _DEFAULT))


def _time_outs(old: TimeOuts, new: TimeOuts) -> Iterator[str]:
    for name in (each.name for each in fields(TimeOuts)):
        was, will = getattr(old, name), getattr(new, name)
        if was != will:
            show = str if name in _COUNTED else format_duration
            yield _set(name, show(was), show(will))
