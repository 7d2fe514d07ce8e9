"""PyTorch: storages are written in place, tensors are faces over them."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader
from torch.utils.hooks import RemovableHandle

from gpulease.transfer import pieces, state, ways
from gpulease.transfer.torch import devices, memory, objects, tensors

ways.enter(
    {
        torch.Tensor: tensors.reduce,
        torch.UntypedStorage: memory.reduce_storage,
        torch.storage.TypedStorage: objects.attributes,
        torch.nn.Module: objects.attributes,
        torch.jit.ScriptModule: objects.script,
        torch.optim.Optimizer: objects.optimizer,
        torch.optim.lr_scheduler.LRScheduler: objects.attributes,
        torch.amp.GradScaler: objects.scaler,
        torch.Generator: objects.generator,
        torch.finfo: objects.limits,
        torch.iinfo: objects.limits,
        DataLoader: objects.loader,
        RemovableHandle: objects.attributes,
    },
    raw=objects.is_raw,
    lasting=(torch.Tensor, torch.UntypedStorage, torch.Generator),
    values=(
        torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, tensors.Anchor,
    ),
    in_order={
        torch.Tensor: tensors.is_in_order,
        torch.UntypedStorage: lambda _storage: True,
        torch.nn.Module: lambda module: objects.is_raw(type(module)),
        torch.optim.Optimizer: lambda _optimizer: True,
        torch.optim.lr_scheduler.LRScheduler: lambda scheduler: objects.is_raw(type(scheduler)),
    },
)  # fmt: skip
pieces.enter(torch.UntypedStorage, memory.LARGE)
ways.arrays.append(memory.reduce_array)
ways.after_packing.append(memory.look)
ways.valueless.append(tensors.way)
ways.devices.append(ways.Device(devices.total_use, devices.use_of))
state.enter(devices.ROWS)
