"""Modules of ``torch.jit``: their code as torch writes it, their tensors as tensors."""

from __future__ import annotations

import io
import operator
from typing import Any

import torch

from gpulease.transfer_next.unsaid import unsaid


def tensors(module: torch.jit.ScriptModule) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name; one that has two names stands under both."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def reduce(module: torch.jit.ScriptModule) -> Any:
    """Return the reduction of a scripted or traced module."""
    code = io.BytesIO()
    with unsaid():  # torch would rather export
        torch.jit.save(module, code)
    return load, (code.getvalue(),), tensors(module), None, None, set_tensors


def load(code: bytes) -> Any:
    """Return a module of its code."""
    with unsaid():
        return torch.jit.load(io.BytesIO(code), map_location="cpu")


def set_tensors(module: Any, found: dict[str, torch.Tensor]) -> None:
    """Put the tensors that others hold, too, in place of those that came with the code."""
    for name, tensor in found.items():
        path, _, last = name.rpartition(".")
        owner = operator.attrgetter(path)(module) if path else module
        owner._c.setattr(last, tensor)
