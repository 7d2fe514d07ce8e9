"""Tensors of a computation graph: the value travels, the graph stays.

On the other side the value is a non-leaf whose node has as inputs that side's own counterparts of
every leaf the graph reaches, and whose backward says where the graph is.  Without those inputs
``autograd.grad(loss + w**2, w)`` would leave out the part of ``loss`` and say nothing.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from gpulease.transfer.frameworks.base import Packing
from gpulease.transfer.refuse import RefusedError

from . import loading, memories

#: In a set of leaves: the graph begins over a value whose own graph is on the other side.
_OVER_AWAY = 0
_LEAF: Any = torch._C._functions.AccumulateGrad
Leaves = frozenset[int]
_NONE: Leaves = frozenset()


class Reached:
    """Which leaves graphs reach: what was found is kept, with the nodes, for one walk."""

    def __init__(self) -> None:
        self._known: dict[Any, Leaves] = {None: _NONE}
        self._by_id: dict[int, torch.Tensor] = {}
        #: Each set once, and the sets of two of them together, so that ``is`` compares them.
        self._sets: dict[Leaves, Leaves] = {}
        self._joined: dict[tuple[int, int], Leaves] = {}
        self._tuples: dict[Leaves, tuple[torch.Tensor, ...]] = {}

    def leaves(self, root: Any) -> tuple[tuple[torch.Tensor, ...], bool]:
        """Return the leaves below a node, and whether a part of its graph is elsewhere.

        Nodes that reach the same leaves get the same tuple.
        """
        known = self._known
        stack = [] if root in known else [(root, root.next_functions)]
        while stack:  # a node waits here until all below it are known
            node, following = stack[-1]
            found = _NONE
            for below, _ in following:
                known_below = known.get(below)
                if known_below is None:
                    if type(below) is not _LEAF:
                        stack.append((below, below.next_functions))
                        break
                    known_below = known[below] = self._leaf(below.variable)
                if known_below is not found:
                    found = self._join(found, known_below)
            else:
                if isinstance(node, loading.STAND_IN):
                    found = self._join(found, self._set(frozenset({_OVER_AWAY})))
                known[node] = found
                stack.pop()
        return self._tuple(known[root]), _OVER_AWAY in known[root]

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

    def _tuple(self, leaves: Leaves) -> tuple[torch.Tensor, ...]:
        if leaves not in self._tuples:
            self._tuples[leaves] = tuple(self._by_id[key] for key in sorted(leaves - {_OVER_AWAY}))
        return self._tuples[leaves]


def reached(scratch: dict[Any, Any]) -> Reached:
    """Return what is known of graphs in this walk, or this pass."""
    found: Reached = scratch.setdefault("reached", Reached())
    return found


class Batch:
    """Tensors whose graphs reach the same leaves: one node for all of them."""

    def __init__(self, where: str, below: tuple[torch.Tensor, ...], packing: Packing) -> None:
        self.where = where
        self.leaves = below
        self.tensors: list[torch.Tensor] = []
        self._packing = packing

    def __reduce__(self) -> Any:
        label = self._packing.label(*self.tensors)
        columns = _columns(self.tensors, self._packing)
        return loading.graph_tensors, (label, self.where, self.leaves, columns)


def _columns(tensors: list[torch.Tensor], packing: Packing) -> tuple[Any, ...]:
    """Return ids, looks and memories of tensors, column by column.

    Looks (signature, class and layout) are few: each stands once, with its number in the column.
    """
    table = memories.table(packing)
    side = packing.registry.side
    oids: list[str] = []
    column: list[int] = []
    places: list[int | None] = []
    others: list[Any] = []
    looks: dict[Any, int] = {}
    for tensor in tensors:
        oid = packing.lasting_oid(tensor)
        oids.append(oid)
        if oid:
            packing.versions[oid] = tensor._version
        memory, row = memories.memory_of(tensor, packing)
        kind = None if type(tensor) is torch.Tensor else type(tensor)
        look = (loading.signature(tensor, side), kind, row)
        column.append(looks.setdefault(look, len(looks)))
        place = memory.place if type(memory) is memories.Memory else None
        places.append(place)
        if place is None:
            others.append(memory)
    return ",".join(oids), list(looks), column, table if table.storages else [], places, others


def find_batches(tensors: list[torch.Tensor], packing: Packing) -> None:
    """Put the graph tensors of a group into batches."""
    batches: dict[tuple[str, int], Batch] = packing.scratch.setdefault("batches", {})
    placed: dict[int, tuple[Batch, int]] = packing.scratch.setdefault("placed", {})
    found = reached(packing.walked)
    known = memories.seen(packing.walked)
    walked = []
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors:
            node: Any = tensor.grad_fn
            if node is None:
                continue
            if id(tensor) in known:
                walked.append(tensor)
            elif not memories.is_plain(tensor):
                continue
            below, over_away = found.leaves(node)
            if isinstance(node, loading.STAND_IN):
                where = node.where
            else:
                where = packing.registry.side + ("over" if over_away else "")
            key = (where, id(below))
            batch = batches.get(key)
            if batch is None:
                leaves = tuple(sorted(below, key=packing.oid))  # the other side sorts as this one
                batch = batches[key] = Batch(where, leaves, packing)
            placed[id(tensor)] = (batch, len(batch.tensors))
            batch.tensors.append(tensor)
        memories.put_in_table(walked, packing)


def reduce(tensor: torch.Tensor, packing: Packing) -> Any:
    """Return the reduction of a tensor that is part of a graph."""
    placed = packing.scratch.setdefault("placed", {})
    if id(tensor) not in placed:  # made by a value's own way of being pickled
        packing.scratch["batches"] = {}
        find_batches([tensor], packing)
    return operator.getitem, placed[id(tensor)]


def refuse_graph(tensor: torch.Tensor) -> None:
    """Raise for a tensor of a graph that no stand-in can be made for."""
    if tensor.grad_fn is not None:
        raise RefusedError(
            f"a {tensor.layout} tensor that is part of a computation graph (use .detach())"
        )
