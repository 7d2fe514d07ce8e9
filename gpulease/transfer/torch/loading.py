"""Tensors on their way in: those of this side where they are known, new ones else.

Nothing that a person sees is changed here: what a known storage or tensor becomes is planned, and
``Plan.apply`` carries it out at the commit.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from gpulease.transfer import pieces, rebuild, stayed
from gpulease.transfer.torch import commit, devices
from gpulease.transfer.torch.commit import Plan, each_set, flat, put


def plan() -> Plan:
    """Return what the commit will do."""
    here = rebuild.here()
    found = here.plans.get("torch")
    if found is None:
        found = here.plans["torch"] = Plan(here.bind)
        here.later.append(found.apply)
    return found


# ---- memory


def memory(oid: str, size: int, tag: str, data: Any) -> torch.UntypedStorage:
    """Return the storage ``oid``, which gets its bytes at the commit where it is known."""
    here = rebuild.here()
    live = here.found(oid)
    if live is not None and live.nbytes() == size:
        plan().writes.append((live, data))
        return live
    made = devices.empty(size, tag, here.side)
    put(made, 0, data, None)
    _keep(oid, made, live)
    return made


def large_memory(oid: str, size: int, tag: str) -> Any:
    """Return the storage ``oid``, whose memory travels in pieces."""
    here = rebuild.here()
    live = here.found(oid)
    return here.large_memory(
        oid,
        lambda known: bool(known.nbytes() == size),
        lambda part: _new(size, tag, part),
        lambda made: _keep(oid, made, live),
    )


def _new(size: int, tag: str, part: Any) -> torch.UntypedStorage:
    """Return a storage with these bytes: the one into which they were received where that is it."""
    came = pieces.placed(part, "torch")
    made = devices.empty(size, tag, rebuild.here().side, came)
    if made is not came:
        put(made, 0, part, None)
    return made


def _keep(oid: str, made: Any, live: Any) -> None:
    """Give a new object its id: at the commit where another one has it until then."""
    if live is None:
        rebuild.here().bind(oid, made)
    else:
        plan().binds.append((oid, made, live))


def array(storage: torch.UntypedStorage, *how: Any) -> Any:
    """Return an array over the memory of a storage; ``how`` as ``rebuild.view`` has it."""
    return rebuild.view(flat(storage).numpy(), *how)


# ---- tensors


def face(kind: Any, storage: Any, row: Any, requires_grad: bool = False,
         shared: tuple[torch.Tensor | None, bool] = (None, False)) -> torch.Tensor:  # fmt: skip
    """Return a new tensor over a storage."""
    dtype, offset, size, stride = row
    out = torch.empty(0, dtype=dtype, device=storage.device)
    out.set_(storage, offset, size, stride)
    out = out.data  # whose version is 0 again: nobody has written to it
    owner, view = shared
    if owner is not None:
        out = commit.joined(owner, view, out)
    if kind is not torch.Tensor:
        return torch.Tensor._make_subclass(kind, out, requires_grad)
    return out.requires_grad_() if requires_grad else out


def tensor(  # noqa: PLR0917 - a pickle passes arguments by position
    oid: str, kind: type, storage: Any, row: Any, requires_grad: bool, version: int | None,
    bits: dict[str, bool] | None = None, owner: torch.Tensor | None = None, view: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return the leaf ``oid``: the very object where it is known.

    Without a ``version`` it is of inference mode.  Writes to a new one count as writes to its
    ``owner``, which it may be a ``view`` of.
    """
    live = rebuild.here().found(oid)
    inference = version is None
    with torch._C.DisableTorchFunctionSubclass():
        if live is not None and live.is_inference() == inference:
            shows = None if _shows(live, storage, row) else face(kind, storage, row)
            if shows is not None and bits:
                torch._C._set_tensor_metadata(shows, bits)
            plan().faces.append((live, shows, kind, requires_grad, version))
            return live
        with torch.inference_mode(inference):
            made = face(kind, storage, row, requires_grad and not inference, (owner, view))
        if bits:
            torch._C._set_tensor_metadata(made, bits)
        plan().faces.append((made, None, None, None, version))
        _keep(oid, made, live)
    return made


def fill(made: torch.Tensor, content: dict[str, Any]) -> None:
    """Give a tensor gradient, hooks and attributes: at the commit."""
    plan().contents[id(made)] = (made, content)


def _shows(live: torch.Tensor, storage: Any, row: Any) -> bool:
    """Say whether a tensor shows that memory already, be it by a storage of its own.

    What came by DLPack has one, and only the tensor that it came from keeps its memory alive: that
    one must not be given another storage.
    """
    dtype, offset, size, stride = row
    if (live.dtype, tuple(live.size()), live.stride()) != (dtype, size, stride):
        return False
    own = live.untyped_storage()
    if own is storage:
        return bool(live.storage_offset() == offset)
    shift = (offset - live.storage_offset()) * live.element_size()
    here = own.data_ptr() if own.device == storage.device != torch.device("meta") else 0
    return bool(here) and here == storage.data_ptr() + shift


def sparse(layout: Any, parts: list[Any], size: Any, coalesced: bool | None,
           requires_grad: bool) -> torch.Tensor:  # fmt: skip
    """Return a sparse tensor over the memory of its parts."""
    faces = [face(torch.Tensor, storage, row) for storage, row in parts]
    device = faces[-1].device  # said, for a notebook may have set a default device
    if layout is torch.sparse_coo:
        made = torch.sparse_coo_tensor(
            *faces, size, device=device, is_coalesced=coalesced, check_invariants=False
        )
    else:
        with unsaid():  # that it is in beta was said where it was made
            made = torch.sparse_compressed_tensor(
                *faces, size, layout=layout, device=device, check_invariants=False
            )
    return made.requires_grad_(requires_grad)


def nested(part: Any, rows: list[Any], requires_grad: bool) -> torch.Tensor:
    """Return a nested tensor over its memory."""
    buffer = face(torch.Tensor, *part)
    tables = [torch.tensor(row, dtype=torch.int64, device="cpu") for row in rows]
    with unsaid():  # that it is a prototype was said where it was made
        made: torch.Tensor = torch._nested_view_from_buffer(buffer, *tables)
    return made.detach().requires_grad_(requires_grad)


def quantized(  # noqa: PLR0917 - as above
    data: Any, dtype: Any, size: Any, scale: Any, zero: Any, axis: int | None = None
) -> Any:
    """Return a quantised tensor from its integers."""
    integers = torch.frombuffer(bytearray(data), dtype=dtype).reshape(size)
    with unsaid():  # as is that it is deprecated
        if axis is None:
            return torch._make_per_tensor_quantized_tensor(integers, scale, zero)
        numbers = [torch.tensor(each, dtype=kind) for kind, each in (scale, zero)]
        return torch._make_per_channel_quantized_tensor(integers, *numbers, axis)


# ---- tensors of a graph


class _Elsewhere(torch.autograd.Function):  # type: ignore[misc]
    """The last node of a value whose graph stayed, and the one below it: all leaves are its inputs.

    Only the value's own is ever run backward.
    """

    @staticmethod
    def forward(ctx: Any, where: str, signed: str, shows: Any, *_below: torch.Tensor) -> Any:
        ctx.where, ctx.signed = where, signed
        return face(*shows) if shows else torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *_grads: torch.Tensor) -> Any:
        raise _error(ctx.where, ctx.value())


#: A custom function's node is an instance of this.
STAND_IN: Any = _Elsewhere._backward_cls


class GraphElsewhereError(RuntimeError):
    """A backward reached a value whose graph is on the other side."""


_SENTENCES = {
    "a": "the graph of {} is on the GPU: run backward in a GPU cell",
    "h": "the graph of {} is in your notebook: run backward there",
    "aover": "{} was computed on the GPU from a value whose graph is in your notebook: "
    "compute both on one side",
    "hover": "{} was computed in your notebook from a value whose graph is on the GPU: "
    "compute both on one side",
}


def _error(where: str, value: torch.Tensor | None) -> GraphElsewhereError:
    found = stayed.way_to(stayed.variables(), value) if value is not None else ""
    return GraphElsewhereError(_SENTENCES[where].format(found or "a value"))


def signature(value: torch.Tensor, side: str) -> str:
    """Return what tells one graph of a tensor from its next: the side that has it, the version."""
    node: Any = commit.node_of(value)
    return str(node.signed) if isinstance(node, STAND_IN) else f"{side}{value._version}"


def anchor(where: str, leaves: tuple[torch.Tensor, ...]) -> tuple[str, torch.Tensor]:
    """Return a value over all ``leaves``, over which the values of their graphs are made."""
    # Leaves that were frozen since take part in a graph that was made before.
    with torch.inference_mode(False), torch.enable_grad():
        last = torch.zeros((), requires_grad=True)
        with each_set(leaves, "requires_grad", True):
            return where, _Elsewhere.apply(where, "", None, *leaves, last)


def graph_tensor(  # noqa: PLR0917 - a pickle passes arguments by position
    oid: str, over: tuple[str, torch.Tensor], kind: Any, storage: Any, row: Any, signed: str,
    version: int,
) -> torch.Tensor:  # fmt: skip
    """Return a value of a graph that stayed, or the known tensor unless its graph is another."""
    here = rebuild.here()
    live = here.found(oid)
    with torch._C.DisableTorchFunctionSubclass():
        known = live is not None and commit.node_of(live) is not None
        if known and signature(live, here.side) == signed and _shows(live, storage, row):
            plan().faces.append((live, None, None, None, version))
            return live
        where, base = over
        with torch.inference_mode(False), torch.enable_grad():
            made: torch.Tensor = _Elsewhere.apply(where, signed, (kind, storage, row), base)
    node: Any = made.grad_fn
    node.value = weakref.ref(made)
    plan().faces.append((made, None, None, None, version))
    _keep(oid, made, live)
    return made


#: As ``warnings.simplefilter("ignore")`` makes it.
_IGNORE_ALL: Final = [("ignore", None, Warning, None, 0)]


@contextmanager
def unsaid() -> Iterator[None]:
    """Ignore every warning meanwhile, also where the notebook has made errors of them.

    Python is not told that there are other filters, as ``catch_warnings`` would: it would then show
    once more what it had shown once (https://github.com/python/cpython/issues/73858).
    """
    filters = warnings.filters
    warnings.filters = _IGNORE_ALL
    try:
        yield
    finally:
        warnings.filters = filters
