"""Which namespaces a site's names and patterns mean, and which hub's servers run in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase


def is_pattern(namespace: str) -> bool:
    """Whether this is a pattern of names, not a name."""
    return bool(set(namespace) & set(_WILD))


def plain(namespaces: Sequence[str]) -> list[str]:
    """Return those that are names."""
    return [each for each in namespaces if not is_pattern(each)]


def only(namespaces: Sequence[str]) -> str:
    """Return the one namespace that there is, "" for several and for what a pattern may mean."""
    return namespaces[0] if len(namespaces) == 1 and not is_pattern(namespaces[0]) else ""


def may_meet(one: str, other: str) -> bool:
    """Whether some namespace could be meant by both; two patterns are told apart by how they begin.

    A hub that names namespaces after its people can make whatever its pattern means.
    """
    if is_pattern(one) and is_pattern(other):
        begin, start = _beginning(one), _beginning(other)
        return begin.startswith(start) or start.startswith(begin)
    return fnmatchcase(one, other) or fnmatchcase(other, one)


def hub_of(namespace: str, hubs: Mapping[str, Sequence[str]]) -> str:
    """Return the further hub whose servers run in a namespace, "" for the first hub's or none's.

    Args:
        namespace: a name.
        hubs: names and patterns by further hub.
    """
    for hub, patterns in hubs.items():
        if any(fnmatchcase(namespace, pattern) for pattern in patterns):
            return hub
    return ""


def _beginning(pattern: str) -> str:
    return pattern[: min(pattern.index(each) for each in _WILD if each in pattern)]


_WILD = "*?["
