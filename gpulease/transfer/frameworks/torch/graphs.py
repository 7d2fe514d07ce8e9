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
Leaves = frozenset[int]


def leaves(tensor: torch.Tensor, scratch: dict[Any, Any]) -> tuple[tuple[torch.Tensor, ...], bool]:
    """Return the leaves that a tensor's graph reaches, and whether a part of it is elsewhere.

    Tensors whose graphs reach the same leaves get the same tuple.
    ``scratch`` keeps what was found, and the nodes, for the next tensor of the same pass.
    """
    known: dict[int, Leaves] = scratch.setdefault("nodes", {})
    by_id: dict[int, torch.Tensor] = scratch.setdefault("leaves", {})
    keep: list[Any] = scratch.setdefault("keep", [])
    root = tensor.grad_fn
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        node, below_known = stack.pop()
        if id(node) in known:
            continue
        following = [n for n, _ in node.next_functions if n is not None]
        if not below_known:
            keep.append(node)
            stack.append((node, True))
            stack += [(n, False) for n in following if id(n) not in known]
            continue
        known[id(node)] = _of_node(node, [known[id(n)] for n in following], by_id)
    found = known[id(root)]
    tuples: dict[Leaves, tuple[torch.Tensor, ...]] = scratch.setdefault("tuples", {})
    if found not in tuples:
        tuples[found] = tuple(by_id[key] for key in sorted(found - {_OVER_AWAY}))
    return tuples[found], _OVER_AWAY in found


def _of_node(node: Any, below: list[Leaves], by_id: dict[int, torch.Tensor]) -> Leaves:
    leaf = getattr(node, "variable", None)
    if leaf is not None:
        by_id[id(leaf)] = leaf
        return frozenset({id(leaf)})
    if isinstance(node, loading.STAND_IN):
        below = [*below, frozenset({_OVER_AWAY})]
    different = list({id(some): some for some in below if some}.values())
    return different[0] if len(different) == 1 else frozenset().union(*different)


class Batch:
    """Tensors whose graphs reach the same leaves: one node for all of them."""

    def __init__(self, where: str, reached: tuple[torch.Tensor, ...], packing: Packing) -> None:
        self.where = where
        self.leaves = reached
        self.tensors: list[torch.Tensor] = []
        self._packing = packing

    def __reduce__(self) -> Any:
        rows = [_row(tensor, self._packing) for tensor in self.tensors]
        label = self._packing.label(*self.tensors)
        return loading.graph_tensors, (label, self.where, self.leaves, rows)


def _row(tensor: torch.Tensor, packing: Packing) -> tuple[Any, ...]:
    oid = packing.lasting_oid(tensor)
    if oid:
        packing.versions[oid] = tensor._version
    memory, row = memories.memory_of(tensor, packing)
    kind = None if type(tensor) is torch.Tensor else type(tensor)
    return oid, loading.signature(tensor, packing.registry.side), kind, memory, row


def find_batches(tensors: list[torch.Tensor], packing: Packing) -> None:
    """Put the graph tensors of a group into batches."""
    batches: dict[tuple[str, int], Batch] = packing.scratch.setdefault("batches", {})
    placed: dict[int, tuple[Batch, int]] = packing.scratch.setdefault("placed", {})
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors:
            if tensor.grad_fn is None or not memories.is_plain(tensor):
                continue
            reached, over_away = leaves(tensor, packing.scratch)
            if isinstance(tensor.grad_fn, loading.STAND_IN):
                where = tensor.grad_fn.where
            else:
                where = packing.registry.side + ("over" if over_away else "")
            key = (where, id(reached))
            batch = batches.get(key)
            if batch is None:
                batch = batches[key] = Batch(where, reached, packing)
            placed[id(tensor)] = (batch, len(batch.tensors))
            batch.tensors.append(tensor)


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
