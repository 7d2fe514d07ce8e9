"""Carries out what loading planned: bytes into storages, then what tensors are beside them.

Storages that have the right bytes already are left alone, and a tensor's version rises if and only
if the other side's did or its bytes changed: else a live graph over it could not run backward.
"""

from __future__ import annotations

from typing import Any

import torch

from gpulease.transfer.frameworks.base import Stage
from gpulease.transfer_next.torch.valueless import ValuelessTensor

from .loading import Plan, holds, plan_of, set_grad, write


def apply(pairs: list[tuple[Any, Any]], stage: Stage) -> None:
    """See ``base.Framework``."""
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        plan = plan_of(stage)
        changed = set()
        for storage, data in plan.writes:
            if not holds(storage, data):
                write(storage, data)
                changed.add(storage.data_ptr())  # what came by DLPack has a storage of its own
        _shape(plan)
        _raise_versions(plan, changed, stage)
        for tensor, _, _, kind, requires_grad in plan.faces:
            if kind is not None and type(tensor) is not kind:
                tensor.__class__ = kind
            if requires_grad is not None and tensor.requires_grad is not requires_grad:
                tensor.requires_grad = requires_grad
        contents = {id(tensor): content for tensor, content in pairs}
        known = {id(tensor): tensor for tensor, *_ in plan.faces}
        known.update((id(tensor), tensor) for tensor, _ in pairs)
        for key, tensor in known.items():
            _fill(tensor, contents.get(key) or {})
        stage.versions.update(_versions(plan))


def _versions(plan: Plan) -> dict[str, int]:
    known = [*plan.made, *((oid, tensor) for tensor, oid, *_ in plan.faces)]
    return {oid: tensor._version for oid, tensor in known if oid and not tensor.is_inference()}


def _shape(plan: Plan) -> None:
    for tensor, _, shows, _, requires_grad in plan.faces:
        if requires_grad is not None and tensor.grad_fn is not None:
            tensor.detach_()
        if shows is not None:
            tensor.data = shows


def _raise_versions(plan: Plan, changed: set[int], stage: Stage) -> None:
    risen = [
        tensor
        for tensor, oid, *_ in plan.faces
        if (oid in stage.risen or tensor.untyped_storage().data_ptr() in changed)
        and not tensor.is_inference()
    ]
    if risen:
        torch.autograd.graph.increment_version(risen)


def _fill(tensor: torch.Tensor, content: dict[str, Any]) -> None:
    """Give a tensor gradient, hooks and attributes, and take away those that it has no more."""
    if content.get("retain"):
        tensor.retain_grad()
    if tensor.is_leaf or tensor.retains_grad:
        grad = content.get("grad")
        if tensor.grad is not grad:
            set_grad(tensor, grad)
    if tensor.is_leaf:
        _set_hooks(tensor, "_backward_hooks", content.get("hooks"))
        _set_hooks(tensor, "_post_accumulate_grad_hooks", content.get("post"))
    attributes = content.get("attributes", {})
    if isinstance(tensor, ValuelessTensor):
        return
    if tensor.__dict__ or attributes:
        tensor.__dict__.clear()
        tensor.__dict__.update(attributes)


def _set_hooks(tensor: torch.Tensor, name: str, hooks: Any) -> None:
    if getattr(tensor, name) is not hooks and (hooks or getattr(tensor, name)):
        setattr(tensor, name, hooks)
