"""PyTorch: storages are what travels and is written, tensors are faces over them."""

from __future__ import annotations

from typing import Any

import torch

from gpulease.transfer.frameworks.base import Aside, Inside, Packing, Stage
from gpulease.transfer_next.refuse import RefusedError
from gpulease.transfer_next.torch import devices

from . import commit, faces, generators, graphs, memories, objects

_NODE = "a node of a computation graph (the graph stays where it was made)"


class _Torch(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return issubclass(kind, (torch.Tensor, torch.UntypedStorage)) or objects.claims(kind)

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:
        if isinstance(obj, torch.Tensor):
            return faces.inside_all([obj], scratch)
        if isinstance(obj, torch.UntypedStorage):
            return Inside([], [memories.span(obj)])
        return objects.inside(obj)

    def inside_all(self, objects: list[Any], scratch: dict[Any, Any]) -> Inside:
        tensors = [obj for obj in objects if isinstance(obj, torch.Tensor)]
        found = faces.inside_all(tensors, scratch)
        if len(tensors) == len(objects):
            return found
        rest = super().inside_all([o for o in objects if not isinstance(o, torch.Tensor)], scratch)
        return Inside(found.values + rest.values, found.spans + rest.spans)

    def prepare(self, claimed: list[Any], packing: Packing) -> None:
        tensors = [obj for obj in claimed if isinstance(obj, torch.Tensor)]
        memories.find_memory(tensors, packing)
        graphs.find_batches(tensors, packing)

    def reduce(self, obj: Any, packing: Packing) -> Any:
        if isinstance(obj, torch.Tensor):
            return faces.reduce(obj, packing)
        if isinstance(obj, torch.UntypedStorage):
            return memories.storage_of(obj, packing)
        if isinstance(obj, torch.autograd.graph.Node):
            raise RefusedError(_NODE)
        if isinstance(obj, torch.Generator):
            return generators.reduce(obj, packing)
        return objects.reduce(obj)

    def content(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return faces.content(obj) if isinstance(obj, torch.Tensor) else None

    def contents(self, objects: list[Any], packing: Packing) -> list[tuple[Any, Any]]:
        tensors = [obj for obj in objects if isinstance(obj, torch.Tensor)]
        return faces.contents(tensors, packing)

    def keeps(self, obj: Any) -> bool:
        exact = type(obj) in (torch.Tensor, torch.nn.Parameter)
        return exact and memories.is_plain(obj) and obj.grad_fn is None

    def use_of(self, obj: Any) -> dict[int, int]:
        return devices.use_of(obj)

    def used(self, error: BaseException) -> int | None:
        return devices.total_use(error)

    def apply(self, pairs: list[tuple[Any, Any]], stage: Stage) -> None:
        commit.apply(pairs, stage)
        generators.apply(stage)


FRAMEWORK = _Torch()
