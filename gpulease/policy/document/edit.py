"""What is done with a policy beside reading it.

Single values are set in its text, and the rest stays as it was written, comments too.  What one
document would change in another is said in words.  A person is shown only what concerns them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gpulease.policy.document.reader import tree_of
from gpulease.policy.model import PolicyDocument
from gpulease.policy.projects import Project
from gpulease.texts import Text

_SECTION = "time_outs"


def with_time_outs(text: str, values: Mapping[str, str]) -> str:
    """Return the document's text with these time-outs set.

    Args:
        text: a valid policy document.
        values: by name, as they are written: ``{"idle": "5m", "keeps": "3"}``.
    """
    for name, value in values.items():
        text = _with_one(text, (_SECTION, name), value)
    return text


def with_paused(text: str, pools: Iterable[str], paused: bool) -> str:
    """Return the document's text with these pools, which it names, paused or not."""
    for pool in pools:
        text = _with_one(text, ("pools", pool, "paused"), str(paused).lower())
    return text


def with_drained(text: str, nodes: Iterable[str]) -> str:
    """Return the document's text with these nodes drained and no others."""
    names = ", ".join(json.dumps(each) for each in nodes)
    return _with_one(text, ("drained_nodes",), f"[{names}]")


def _with_one(text: str, path: Sequence[str], value: str) -> str:
    """Set the value at a path; sections that are not there are made."""
    node: Node | None = yaml.compose(text, yaml.SafeLoader)
    for place, name in enumerate(path):
        assert isinstance(node, MappingNode), "the document is valid"
        found = _value_of(node, name)
        inner = value
        for rest in reversed(path[place + 1 :]):
            inner = f"{{{rest}: {inner}}}"
        if found is None:
            return _inserted(text, node, f"{name}: {inner}")
        if place == len(path) - 1:
            return _replaced(text, found, value)
        if not isinstance(found, MappingNode):  # a section's name and nothing after it
            return _replaced(text, found, f" {inner}")
        node = found
    return text


def _value_of(mapping: MappingNode, name: str) -> Node | None:
    found = (v for k, v in mapping.value if isinstance(k, ScalarNode) and k.value == name)
    return next(found, None)


def _replaced(text: str, node: Node, value: str) -> str:
    if isinstance(node, SequenceNode) and not node.flow_style:  # it ends where the next line begins
        value = f"  {value}\n"
    return text[: node.start_mark.index] + value + text[node.end_mark.index :]


def _inserted(text: str, mapping: MappingNode, line: str) -> str:
    """Put a pair before the first one of a mapping, in the mapping's own style."""
    if mapping.flow_style:
        at = mapping.start_mark.index + 1
        return f"{text[:at]}{line}{', ' if mapping.value else ''}{text[at:]}"
    first = mapping.value[0][0].start_mark
    return f"{text[: first.index]}{line}\n{' ' * first.column}{text[first.index :]}"


#: Sections of named entries: what one is called, and how a change in one is told.
_ENTRIES: Final = {
    "pools": (Text("pool"), Text("for pool {name}: {said}")),
    "classes": (Text("class"), Text("for class {name}: {said}")),
    "projects": (Text("project"), Text("for project {name}: {said}")),
}
#: Sections whose keys are named alone: no other section has them.
_PLAIN: Final = ("limits", "time_outs")


def differences(before: PolicyDocument, after: PolicyDocument) -> list[str]:
    """Return a sentence for each difference, in the order of the document; empty when equal."""
    old, new = tree_of(before), tree_of(after)
    everywhere = set(_members("", old["time_outs"], new["time_outs"]))
    found: list[str] = []
    for section in dict.fromkeys([*old, *new]):
        was, will = old.get(section), new.get(section)
        if section in _ENTRIES:
            found += _entries(section, was or {}, will or {}, everywhere)
        elif section in _PLAIN:
            found += _members("", was or {}, will or {})
        else:
            found += _members("", {section: was}, {section: will})
    return found


def _entries(
    section: str, old: Mapping[str, Any], new: Mapping[str, Any], everywhere: set[str]
) -> Iterator[str]:
    what, told = _ENTRIES[section]
    for name in (each for each in new if each not in old):
        yield Text("add {what} {name}", what=what, name=name)
    for name in (each for each in old if each not in new):
        yield Text("remove {what} {name}", what=what, name=name)
    for name in (each for each in new if each in old):
        # A class has all time-outs, most of them the document's: what these change is said once.
        outs = (each[name].get("time_outs", {}) for each in (old, new))
        own = [each for each in _members("", *outs) if each not in everywhere]
        rest = ({**each[name], "time_outs": {}} for each in (old, new))
        for said in (*_members("", *rest), *own):
            yield Text(told, name=name, said=said)


def _members(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each value that differs, at whatever depth."""
    for key in dict.fromkeys([*old, *new]):
        was, will = old.get(key), new.get(key)
        path = f"{name}.{key}" if name else key
        if was == will or _shown(was) == _shown(will):
            continue
        if isinstance(was, dict) or isinstance(will, dict):
            deeper = [each if isinstance(each, dict) else {} for each in (was, will)]
            yield from _members(path, *deeper)
        else:
            values = {"old": _shown(was), "new": _shown(will)}
            yield Text("set {name} from {old} to {new}", name=path, **values)


def _shown(value: Any) -> str:
    if value in (None, "", []):
        return Text("none")
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def concerning(
    policy: PolicyDocument, user: str, groups: tuple[str, ...], teaches: Callable[[str], bool]
) -> PolicyDocument:
    """Return the document without what is only of others, of the machines and of its keepers.

    Every class, time-out and limit stays.  Of projects and of groups' terms stay those that the
    person is in or teaches, of people in them the person alone (of what they teach everybody), and
    nobody's address.
    """
    projects = policy.projects
    in_or_taught = [
        each
        for each in projects.leaves
        if each in projects.of(groups) or (each.group and teaches(each.group))
    ]
    shown = {each.name for leaf in in_or_taught for each in projects.above(leaf)}
    terms = policy.reservations
    return replace(
        policy,
        classes=tuple(replace(each, pod=None) for each in policy.classes),
        reservations=replace(
            terms,
            groups=tuple(
                (name, own if teaches(name) else replace(own, managers=()))
                for name, own in terms.groups
                if name in groups or teaches(name)
            ),
        ),
        projects=replace(
            projects,
            all=tuple(_project(each, user, teaches) for each in projects.all if each.name in shown),
        ),
        drained_nodes=(),
    )


def _project(project: Project, user: str, teaches: Callable[[str], bool]) -> Project:
    budget = replace(project.budget, contact=()) if project.budget is not None else None
    if project.group and teaches(project.group):
        return replace(project, budget=budget)
    if budget is not None:
        budget = replace(budget, people=tuple(each for each in budget.people if each[0] == user))
    return replace(
        project, people=tuple(each for each in project.people if each[0] == user), budget=budget
    )
