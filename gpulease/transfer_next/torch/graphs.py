"""Which leaves the graph of a tensor reaches."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .loading import STAND_IN

#: In a set of leaves: the graph begins over a value whose own graph is on the other side.
_OVER_AWAY = 0
_LEAF: Any = torch._C._functions.AccumulateGrad
Leaves = frozenset[int]
_NONE: Leaves = frozenset()


class Graph(NamedTuple):
    """A tensor's graph: its last node, and the leaves; of the same leaves the same tuple."""

    node: Any
    leaves: tuple[torch.Tensor, ...]
    #: Whether a part of it is on the other side.
    over_away: bool


class Reached:
    """Which leaves graphs reach: what is below a node is found once in a survey."""

    def __init__(self) -> None:
        self._known: dict[Any, Leaves] = {None: _NONE}
        self._by_id: dict[int, torch.Tensor] = {}
        #: Each set once, and the sets of two of them together, so that ``is`` compares them.
        self._sets: dict[Leaves, Leaves] = {}
        self._joined: dict[tuple[int, int], Leaves] = {}
        self._tuples: dict[Leaves, tuple[torch.Tensor, ...]] = {}

    def of(self, tensor: torch.Tensor) -> Graph:
        """Return the graph of a tensor that has one."""
        node = tensor.grad_fn
        leaves = self._below(node)
        if leaves not in self._tuples:
            self._tuples[leaves] = tuple(self._by_id[key] for key in sorted(leaves - {_OVER_AWAY}))
        return Graph(node, self._tuples[leaves], _OVER_AWAY in leaves)

    def _below(self, root: Any) -> Leaves:
        """Return the leaves below a node, from those of the nodes below it, which are kept."""
        known = self._known
        stack = [] if root in known else [(root, root.next_functions)]
        while stack:  # a node waits here until all below it are known
            node, following = stack[-1]
            found = _NONE
            for below, _ in following:
                leaves = known.get(below)
                if leaves is None:
                    if type(below) is not _LEAF:
                        stack.append((below, below.next_functions))
                        break
                    leaves = known[below] = self._leaf(below.variable)
                if leaves is not found:
                    found = self._join(found, leaves)
            else:
                if isinstance(node, STAND_IN):
                    found = self._join(found, self._set(frozenset({_OVER_AWAY})))
                known[node] = found
                stack.pop()
        return known[root]

    def _leaf(self, leaf: torch.Tensor) -> Leaves:
        self._by_id[id(leaf)] = leaf
        return self._set(frozenset({id(leaf)}))

    def _set(self, leaves: Leaves) -> Leaves:
        return self._sets.setdefault(leaves, leaves)

    def _join(self, one: Leaves, two: Leaves) -> Leaves:
        if not one or not two:
            return one or two
        key = (id(one), id(two))
        if key not in self._joined:
            self._joined[key] = self._set(one | two)
        return self._joined[key]
