"""What one policy document would change in another, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpulease.policy.document.reader import tree_of
from gpulease.policy.model import PolicyDocument
from gpulease.texts import Text

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
        yield Text("take {what} {name} away", what=what, name=name)
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
