"""Tensors of a computation graph: the value travels, the graph stays.

On the other side the value is a non-leaf whose node has as inputs that side's own counterparts of
every leaf the graph reaches, and whose backward says where the graph is.  Without those inputs
``autograd.grad(loss + w**2, w)`` would leave out the part of ``loss`` and say nothing.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import torch

from gpulease.transfer.frameworks.base import Packing
from gpulease.transfer_next.refuse import RefusedError

from . import loading, memories

#: In a set of leaves: the graph begins over a value whose own graph is on the other side.
_OVER_AWAY = 0
#: Of a way down without forks every so many-th node is kept.
_SPAN = 16
_LEAF: Any = torch._C._functions.AccumulateGrad
_TENSOR: Any = torch.Tensor
_STAND_IN: Any = loading.STAND_IN
_GRAD_FN, _VERSION = _TENSOR.grad_fn.__get__, _TENSOR._version.__get__
Leaves = frozenset[int]
_NONE: Leaves = frozenset()


class Graph(NamedTuple):
    """A tensor's graph: its last node, and the leaves; of the same leaves the same tuple."""

    node: Any
    leaves: tuple[torch.Tensor, ...]
    #: Whether a part of it is on the other side.
    over_away: bool


class Reached:
    """Which leaves graphs reach: what was found is kept, with the nodes, for some walks.

    What is below a node stays what it is, so that it holds whatever happens between two walks.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Leaves] = {None: _NONE}
        self._by_id: dict[int, torch.Tensor] = {}
        #: Each set once, and the sets of two of them together, so that ``is`` compares them.
        self._sets: dict[Leaves, Leaves] = {}
        self._joined: dict[tuple[int, int], Leaves] = {}
        self._tuples: dict[Leaves, tuple[torch.Tensor, ...]] = {}
        #: By ``id`` of the tensors that were asked for.
        self.graphs: dict[int, Graph] = {}
        self._of_nodes: dict[frozenset[Any], Leaves] = {}

    def _below(self, root: Any) -> Leaves:
        """Return the leaves below a node, from those of the nodes below it, which are kept."""
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
                if isinstance(node, _STAND_IN):
                    found = self._join(found, self._set(frozenset({_OVER_AWAY})))
                known[node] = found
                stack.pop()
        return known[root]

    def of(self, tensors: list[torch.Tensor]) -> list[Graph]:
        """Return the graphs of those of the tensors that have one, and remember whose they are."""
        graphs = self.graphs
        found = []
        for key, node in zip(map(id, tensors), map(_GRAD_FN, tensors), strict=True):
            if node is not None:
                found.append((key, node))
            elif key in graphs:  # another tensor's, that is gone
                del graphs[key]
        new = [(k, node) for k, node in found if k not in graphs or graphs[k].node is not node]
        self._look([node for _, node in new])
        for key, node in new:
            leaves = self._known[node]
            graphs[key] = Graph(node, self._tuple(leaves), _OVER_AWAY in leaves)
        return [graphs[key] for key, _ in found]

    def _look(self, roots: list[Any]) -> None:
        """Find out the leaves below each of many nodes.

        Graphs of a list of losses share their leaves and little else: each is walked down once, and
        nothing is kept of the nodes on the way but of some.
        """
        known = self._known
        whose: dict[Any, int] = {}
        count = 0
        for number, root in enumerate(roots):
            if root in known:
                continue
            stack, leaves, others = [root], set(), _NONE
            while stack:
                node = stack.pop()
                following = node.next_functions
                count += 1
                # Where ways part they may meet again; a long way down is gone once.
                if len(following) > 1 or not count % _SPAN or type(node) is _STAND_IN:
                    met = whose.get(node)
                    if met is None and type(node) is not _STAND_IN:
                        whose[node] = number
                    else:
                        if met != number:
                            others = self._join(others, self._below(node))
                        continue
                for below, _ in following:
                    if type(below) is _LEAF:
                        leaves.add(below)
                    elif below is not None:
                        stack.append(below)
            known[root] = self._join(self._of(frozenset(leaves)), others)

    def _of(self, nodes: frozenset[Any]) -> Leaves:
        """Return the leaves of these nodes that accumulate gradients."""
        found = self._of_nodes.get(nodes)
        if found is None:
            leaves = (self._leaf(node.variable) for node in nodes)
            found = self._of_nodes[nodes] = functools.reduce(self._join, leaves, _NONE)
        return found

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
        #: Whether the graph of some is the other side's.
        self.stands = False
        self._packing = packing

    def __reduce__(self) -> Any:
        label = self._packing.label(*self.tensors)
        columns = _columns(self, self._packing)
        return loading.graph_tensors, (label, self.where, self.leaves, columns)


def _columns(batch: Batch, packing: Packing) -> tuple[Any, ...]:
    """Return ids, looks and memories of tensors, column by column.

    Looks (signature, class and layout) are few: each stands once, with its number in the column.
    """
    table, tensors = memories.table(packing), batch.tensors
    oids = packing.lasting_oids(tensors)
    versions = list(map(_VERSION, tensors))
    packing.versions.update(
        (oid, version) for oid, version in zip(oids, versions, strict=True) if oid
    )
    shown, rows = memories.memories_of(tensors, packing)
    signed = loading.signatures(tensors, versions, packing.registry.side, batch.stands)
    kinds = [None if kind is torch.Tensor else kind for kind in map(type, tensors)]
    looks: dict[Any, int] = {}
    each = zip(signed, kinds, rows, strict=True)
    column = [looks.setdefault(look, len(looks)) for look in each]
    places = [memory.place if type(memory) is memories.Memory else None for memory in shown]
    if len(looks) == 1 and places == list(range(len(table.storages))):
        table.alike = tensors
    others = [memory for memory, place in zip(shown, places, strict=True) if place is None]
    return ",".join(oids), list(looks), column, table if table.storages else [], places, others


def find_batches(tensors: list[torch.Tensor], packing: Packing) -> None:
    """Put the graph tensors of a group into batches."""
    batches: dict[tuple[str, int], Batch] = packing.scratch.setdefault("batches", {})
    known, found = packing.known, reached(packing.walked)
    side = packing.registry.side
    with torch._C.DisableTorchFunctionSubclass():
        unknown = [t for t in tensors if id(t) not in known and memories.is_plain(t)]
        found.of(unknown)
        pairs = [(t, graph) for t in tensors if (graph := found.graphs.get(id(t))) is not None]
        if packing.structure:
            pairs = [(t, graph) for t, graph in pairs if not memories.is_away(t, packing)]
        for tensor, graph in pairs:
            stands = isinstance(graph.node, _STAND_IN)  # here for a graph of the other side
            where = graph.node.where if stands else side + ("over" if graph.over_away else "")
            batch = batches.get((where, id(graph.leaves)))
            if batch is None:
                leaves = tuple(sorted(graph.leaves, key=packing.oid))  # both sides sort alike
                batch = batches[where, id(graph.leaves)] = Batch(where, leaves, packing)
            packing.ready[id(tensor)] = operator.getitem, (batch, len(batch.tensors))
            batch.tensors.append(tensor)
            batch.stands |= stands
        walked = [tensor for tensor, _ in pairs if id(tensor) in known]
        memories.put_in_table(walked, packing)


def reduce(tensor: torch.Tensor, packing: Packing) -> Any:
    """Return the reduction of a tensor that is part of a graph."""
    if id(tensor) not in packing.ready:  # made by a value's own way of being pickled
        packing.scratch["batches"] = {}
        find_batches([tensor], packing)
    return packing.ready[id(tensor)]


def refuse_graph(tensor: torch.Tensor) -> None:
    """Raise for a tensor of a graph that no stand-in can be made for."""
    if tensor.grad_fn is not None:
        raise RefusedError(
            f"a {tensor.layout} tensor that is part of a computation graph (use .detach())"
        )
