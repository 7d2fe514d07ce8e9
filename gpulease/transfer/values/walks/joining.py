"""Which roots of a walk belong together, and the groups that they make."""

from __future__ import annotations

from collections.abc import Mapping

from gpulease.transfer.values.groups import Group, merge

#: What comes before the root of a part that counts only where that root was walked.
NEED = "need:"


class Joined:
    """Roots in disjoint sets: two that share an object are in one."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def add(self, root: str) -> None:
        """Begin a set of one root."""
        self._parent[root] = root

    def join(self, one: str, two: str) -> None:
        """Make the sets of two roots one."""
        self._parent[self._first(one)] = self._first(two)

    def groups(self, parts: Mapping[str, Group]) -> list[Group]:
        """Return one group for each set, merged from its roots' parts."""
        buckets: dict[str, list[Group]] = {}
        for name, part in parts.items():
            root = name.removeprefix(NEED)
            if root in self._parent:
                buckets.setdefault(self._first(root), []).append(part)
        return [merge(found) for found in buckets.values()]

    def _first(self, root: str) -> str:
        parent = self._parent
        while parent[root] != root:
            parent[root] = parent[parent[root]]
            root = parent[root]
        return root
