"""The leaves that one walk met: what each reads, and which objects of names it keeps.

Owns what follows for groups of what ``reach`` finds.  It decides nothing about travelling.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from gpulease.transfer.registry import Registry
from gpulease.transfer.values.groups import Group, Held, names_of
from gpulease.transfer_next.addresses import byte_bounds

from .overlaps import Overlaps
from .reach import Reach, reach


class LeafGroups:
    """Gathers the leaves of one walk."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.held = Held()
        self._roots: dict[int, list[str]] = {}
        self._reaches: dict[int, Reach] = {}

    def met(self, root: str, leaf: Any) -> None:
        """A name is bound to ``leaf``, or it is a unit of its own: that has this root."""
        self.held.leaves[id(leaf)] = leaf
        self._roots.setdefault(id(leaf), []).append(root)

    def look(
        self,
        ns: dict[str, Any],
        owner: Mapping[int, str],
        parts: Mapping[str, Group],
        memory: Overlaps,
    ) -> None:
        """Find what each leads to, when everything else was walked."""
        for key, leaf in self.held.leaves.items():
            found = self._reaches[key] = reach(leaf, ns, owner, self._registry)
            shown = [(*byte_bounds(a), a) for a in found.arrays if a.size * a.itemsize]
            found.arrays.clear()
            met = memory.met(parts, shown + [(*span, None) for span in found.spans])
            found.roots |= met.steady
            found.fragile |= met.fragile
            found.held |= met.wholes
            self.held.viewed |= met.wholes
            self.held.objects.update(dict.fromkeys(found.held, leaf))

    def _kept_oids(self, found: Reach, groups: list[Group]) -> set[str]:
        """Return the ids of what a leaf on the GPU's side keeps: home is to know them."""
        if self._registry.side != "a" or not found.held:
            return set()
        inner = [(g.inner, found.held & g.inner.keys()) for g in groups]
        return {self._registry.oid(objs[key]) for objs, keys in inner for key in keys}

    def finish(self, groups: list[Group], contents: dict[str, Any]) -> None:
        """Enter into groups what their leaves use; ``contents`` get what is told of each.

        That is names that it may read, and ids of objects that it keeps.
        """
        if not self._reaches:
            return
        by_root = {root: group for group in groups for root in group.roots}
        for key, found in self._reaches.items():
            shares = _names(found.roots | found.fragile, by_root, groups)
            reads = found.reads | self._kept_oids(found, groups) | shares
            self.held.stuck.update(dict.fromkeys(found.fragile, self.held.leaves[key]))
            if not isinstance(self.held.leaves[key], threading.Thread):  # it goes on unasked
                self.held.shares.update(dict.fromkeys(self._roots[key], shares))
            for root in self._roots[key]:
                group = by_root[root]
                group.reads |= reads
                group.unbounded |= found.unbounded
                if root.startswith("u:"):
                    contents[root[2:]] = reads


def _names(roots: Iterable[str], by_root: Mapping[str, Group], groups: list[Group]) -> set[str]:
    """Return the names of these roots' groups, and those that need a unit among them."""
    reached = {id(g): g for root in roots if (g := by_root.get(root)) is not None}
    queue = list(reached.values())
    while queue:
        oids = queue.pop().oids
        for group in groups if oids else ():
            if id(group) not in reached and not group.needs.isdisjoint(oids):
                reached[id(group)] = group
                queue.append(group)
    return {name for group in reached.values() for name in names_of(group.roots)}
