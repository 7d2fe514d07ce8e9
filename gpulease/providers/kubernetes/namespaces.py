"""Which namespaces a site's names and patterns of them mean."""

from __future__ import annotations

from collections.abc import Sequence


def is_pattern(namespace: str) -> bool:
    """Whether this is a pattern of names, not a name."""
    return bool(set(namespace) & set("*?["))


def plain(namespaces: Sequence[str]) -> list[str]:
    """Return those that are names."""
    return [each for each in namespaces if not is_pattern(each)]


def only(namespaces: Sequence[str]) -> str:
    """Return the one namespace that there is, "" for several and for what a pattern may mean."""
    return namespaces[0] if len(namespaces) == 1 and not is_pattern(namespaces[0]) else ""
