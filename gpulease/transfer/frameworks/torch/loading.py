"""Tensors on their way in: those of this side where they are known, new ones else.

Nothing that a user sees is changed here: what a known storage or tensor becomes is planned, and
``commit`` carries it out.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from gpulease.transfer.frameworks.base import Stage, each_set, staged
from gpulease.transfer_next.torch import devices
from gpulease.transfer_next.unsaid import unsaid

from . import versions

_META = torch.device("meta")
_BYTES: Any = torch.UntypedStorage
_POINTER = _BYTES.data_ptr
#: Bytes compared at once.  A device needs room for them, and for as many answers.
_PART = 16 * 2**20


@dataclass
class Plan:
    """What a commit does to the storages and tensors that are known here."""

    writes: list[tuple[torch.UntypedStorage, Any]] = field(default_factory=list)
    #: Tensor, its oid, what it is to show (None: as it does), its class, and whether it is to
    #: require gradients (None for both: a tensor of a graph).
    faces: list[tuple[torch.Tensor, str, torch.Tensor | None, Any, bool | None]] = field(
        default_factory=list
    )
    #: Tensors that are new here, with their oids.
    made: list[tuple[str, torch.Tensor]] = field(default_factory=list)


def plan_of(stage: Stage) -> Plan:
    """Return the plan of this stage."""
    plan: Plan = stage.scratch.setdefault("torch", Plan())
    return plan


def same(obj: Any) -> Any:
    """Return what was loaded for something that stands for it."""
    return obj


# ---- memory


@staged
def memory(stage: Stage, oid: str, size: int, tag: str, data: Any) -> torch.UntypedStorage:
    """Return the storage ``oid``; ``data`` is None where its bytes are as they were."""
    live = stage.live(oid)
    if live is not None and live.nbytes() == size:
        if data is not None:
            plan_of(stage).writes.append((live, data))
        return live
    if data is None:
        raise stage.lack(oid)
    made = devices.empty(size, tag, stage.registry.side)
    write(made, data)
    stage.make(oid, made)
    return made


@staged
def small_memories(  # noqa: PLR0917 - a pickle passes arguments by position
    stage: Stage, oids: str, sizes: list[int], tags: list[str], column: bytearray, data: bytes
) -> list[torch.UntypedStorage]:
    """Return the storages of a table; ``data`` has their bytes one after the other."""
    names = oids.split(",")
    known = stage.lives(names)
    ends = list(itertools.accumulate(sizes))
    parts = [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    if not any(tags) and not any(isinstance(each, torch.UntypedStorage) for each in known):
        made = list(map(torch.UntypedStorage, sizes))
        list(map(ctypes.memmove, map(_POINTER, made), parts, sizes))
        stage.made.update(zip(names, made, strict=True))
        return made
    out: list[Any] = []
    writes = plan_of(stage).writes
    for oid, live, part, tag in zip(names, known, parts, column, strict=True):
        size = len(part)
        if live is None or live.nbytes() != size:
            made_here = devices.empty(size, tags[tag], stage.registry.side)
            write(made_here, part)
            out.append(stage.make(oid, made_here))
        else:
            writes.append((live, part))
            out.append(live)
    return out


@staged
def meta_memory(stage: Stage, oid: str, size: int) -> torch.UntypedStorage:
    """Return a storage without memory."""
    live = stage.live(oid)
    if live is not None and live.nbytes() == size:
        return live
    made = torch.UntypedStorage(size, device="meta")
    stage.make(oid, made)
    return made


def flat(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a storage's bytes as a tensor that nobody else holds."""
    out = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return out.set_(storage, 0, (storage.nbytes(),), (1,))


def write(storage: torch.UntypedStorage, data: Any) -> None:
    """Put bytes into a storage."""
    size = storage.nbytes()
    if not size:
        return
    if storage.device.type == "cpu" and type(data) is bytes:
        ctypes.memmove(storage.data_ptr(), data, size)
        return
    flat(storage).copy_(_bytes_tensor(data))


def holds(storage: torch.UntypedStorage, data: Any) -> bool:
    """Say whether a storage has these bytes already."""
    size = storage.nbytes()
    if not size:
        return True
    if storage.device.type == "cpu" and type(data) is bytes:
        return ctypes.string_at(storage.data_ptr(), size) == data
    parts = zip(flat(storage).split(_PART), _bytes_tensor(data).split(_PART), strict=True)
    return all(torch.equal(here, there.to(here.device)) for here, there in parts)


def _bytes_tensor(data: Any) -> torch.Tensor:
    """Return received bytes as a tensor, without a copy where torch takes them as they are."""
    writable = bytearray(data) if memoryview(data).readonly else data
    return torch.frombuffer(writable, dtype=torch.uint8)


@staged
def array(  # noqa: PLR0917 - a pickle passes arguments by position
    stage: Stage,  # noqa: ARG001
    storage: torch.UntypedStorage,
    dtype: Any,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    writeable: bool,
) -> Any:
    """Return an array over the memory of a storage (``offset`` in bytes)."""
    import numpy  # the pickled dtype has imported it already

    out = numpy.ndarray(shape, dtype, flat(storage).numpy(), offset, strides)
    out.flags.writeable = writeable
    return out


# ---- tensors


def face(
    kind: Any,
    storage: Any,
    row: Any,
    requires_grad: bool = False,
    shared: tuple[torch.Tensor | None, bool] = (None, False),
) -> torch.Tensor:
    """Return a new tensor over a storage, or over a bytearray."""
    dtype, offset, size, stride = row
    if isinstance(storage, bytearray):
        storage = torch.frombuffer(storage, dtype=torch.uint8).untyped_storage()
    out = torch.empty(0, dtype=dtype, device=storage.device)
    out.set_(storage, offset, size, stride)
    owner, view = shared
    if owner is not None:
        out = versions.sharing(owner, view, out)
    if kind is not torch.Tensor and kind is not None:
        return torch.Tensor._make_subclass(kind, out, requires_grad)
    return out.requires_grad_() if requires_grad else out


@staged
def tensor(  # noqa: PLR0917 - a pickle passes arguments by position
    stage: Stage,
    oid: str,
    kind: type,
    storage: Any,
    row: Any,
    requires_grad: bool,
    flags: tuple[bool, bool, bool] | None,
    owner: torch.Tensor | None = None,
    view: bool = False,
) -> torch.Tensor:
    """Return the leaf ``oid``: the very object where it is known.

    Writes to a new one count as writes to its ``owner``, which it may be a ``view`` of.
    """
    conj, neg, inference = flags or (False, False, False)
    live = stage.live(oid)
    with torch._C.DisableTorchFunctionSubclass():
        if live is not None and live.is_inference() == inference:
            shows = None if _shows(live, storage, row) else face(kind, storage, row)
            plan_of(stage).faces.append((live, oid, shows, kind, requires_grad))
            return live
        with torch.inference_mode(inference):
            made = face(kind, storage, row, requires_grad and not inference, (owner, view))
        if conj or neg:
            bits = {name: True for name, bit in (("conj", conj), ("neg", neg)) if bit}
            torch._C._set_tensor_metadata(made, bits)
        return _make(stage, oid, made)


def _make(stage: Stage, oid: str, made: torch.Tensor) -> torch.Tensor:
    if oid:
        plan_of(stage).made.append((oid, made))
        stage.made[oid] = made
    return made


def _shows(live: torch.Tensor, storage: Any, row: Any) -> bool:
    """Say whether a tensor shows that memory already, be it by a storage of its own.

    What came by DLPack has one, and only the tensor that it came from keeps its memory alive: that
    one must not be given another storage.
    """
    if not isinstance(storage, torch.UntypedStorage):
        return False
    dtype, offset, size, stride = row
    if (live.dtype, tuple(live.size()), live.stride()) != (dtype, size, stride):
        return False
    own = live.untyped_storage()
    if own is storage:
        return bool(live.storage_offset() == offset)
    shift = (offset - live.storage_offset()) * live.element_size()
    here = own.data_ptr() if own.device == storage.device != _META else 0
    return bool(here) and here == storage.data_ptr() + shift


def sparse(
    layout: Any, parts: list[Any], size: Any, coalesced: bool | None, requires_grad: bool
) -> torch.Tensor:
    """Return a sparse tensor from its parts."""
    device = parts[-1].device  # said, for a notebook may have set a default device
    if layout is torch.sparse_coo:
        made = torch.sparse_coo_tensor(
            *parts, size, device=device, is_coalesced=coalesced, check_invariants=False
        )
    else:
        with unsaid():  # that it is in beta was said where it was made
            made = torch.sparse_compressed_tensor(
                *parts, size, layout=layout, device=device, check_invariants=False
            )
    return made.requires_grad_(requires_grad)


def quantized(integers: torch.Tensor, scale: Any, zero: Any, axis: int | None = None) -> Any:
    """Return a quantised tensor from its integers."""
    with unsaid():  # as is that it is deprecated
        if axis is None:
            return torch._make_per_tensor_quantized_tensor(integers, scale, zero)
        return torch._make_per_channel_quantized_tensor(integers, scale, zero, axis)


def set_grad(tensor: torch.Tensor, grad: torch.Tensor | None) -> None:
    """Give a leaf its gradient, also one that an assignment refuses and a backward left there."""
    if grad is None or grad.layout is tensor.layout or tensor.layout is torch.strided:
        tensor.grad = grad
        return
    tensor.grad = None
    with torch.enable_grad():
        torch.autograd.backward([tensor], [grad])


# ---- tensors of a graph


class GraphElsewhereError(RuntimeError):
    """A backward reached a value whose graph is on the other side."""


class _Elsewhere(torch.autograd.Function):  # type: ignore[misc]
    """The node in place of a graph that stayed on the other side."""

    @staticmethod
    def forward(
        ctx: Any,
        label: str,
        where: str,
        rows: list[Any],
        *_leaves: torch.Tensor,
    ) -> Any:
        ctx.label, ctx.where = label, where
        ctx.signatures = [signed for signed, *_ in rows]
        return tuple(face(kind, storage, row) for _, kind, storage, row in rows)

    @staticmethod
    def backward(ctx: Any, *_grads: torch.Tensor) -> Any:
        raise GraphElsewhereError(_SENTENCES[ctx.where].format(ctx.label))


#: A custom function's node is an instance of this.
STAND_IN: Any = _Elsewhere._backward_cls

_SENTENCES = {
    "a": "the graph of {} is on the GPU: run backward in a GPU cell",
    "h": "the graph of {} is in your notebook: run backward there",
    "aover": "{} was computed on the GPU from a value whose graph is in your notebook: "
    "compute both on one side",
    "hover": "{} was computed in your notebook from a value whose graph is on the GPU: "
    "compute both on one side",
}


def signature(tensor: torch.Tensor, side: str) -> str:
    """Return what tells one graph of a tensor from its next: the side that has it, the version."""
    node: Any = tensor.grad_fn
    if isinstance(node, STAND_IN):
        return str(node.signatures[tensor.output_nr])
    return f"{side}{tensor._version}"


def signatures(
    tensors: list[torch.Tensor], versions: list[int], side: str, stands: bool
) -> list[str]:
    """Return ``signature`` of each, of thousands in few steps where no graph ``stands`` for one."""
    if stands:
        return [signature(tensor, side) for tensor in tensors]
    texts = {version: f"{side}{version}" for version in set(versions)}
    return [texts[version] for version in versions]


@staged
def graph_tensors(
    stage: Stage, label: str, where: str, leaves: tuple[torch.Tensor, ...], columns: Any
) -> list[torch.Tensor]:
    """Return a batch of tensors whose graph stayed: known ones unless their graph is another."""
    names, looks, column, table, places, others = columns
    side, oids = stage.registry.side, names.split(",")
    out = stage.lives(oids)
    plan, other = plan_of(stage), iter(others)
    new: list[int] = []
    rows: list[tuple[str, Any, Any, Any]] = []
    for index, (live, look, place) in enumerate(zip(out, column, places, strict=True)):
        storage = next(other) if place is None else table[place]
        signed, kind, row = looks[look]
        known = live is not None and live.grad_fn is not None
        if known and signature(live, side) == signed and _shows(live, storage, row):
            plan.faces.append((live, oids[index], None, None, None))
        else:
            new.append(index)
            rows.append((signed, kind, storage, row))
    if not new:
        return out
    with torch.inference_mode(False), torch.enable_grad(), _requiring(leaves):
        made = _Elsewhere.apply(label, where, rows, *leaves)
    fresh = [(oids[index], tensor) for index, tensor in zip(new, made, strict=True) if oids[index]]
    plan.made += fresh
    stage.made.update(fresh)
    for index, tensor in zip(new, made, strict=True):
        out[index] = tensor
    return out


@contextmanager
def _requiring(leaves: tuple[torch.Tensor, ...]) -> Iterator[None]:
    """Let leaves that were frozen since take part in a graph that was made before."""
    with each_set(leaves, "requires_grad", True):
        yield
