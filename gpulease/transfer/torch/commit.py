"""Carries out what loading planned: bytes into storages, then what tensors are beside them.

Bytes that are right already are left alone.  A tensor's version becomes the other side's number, so
that a live graph over it runs backward if and only if nobody has written to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

#: Bytes compared at once.  A device needs room for them, and for as many answers.
_PART = 16 * 2**20
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
#: Tensor, what it is to show (None: as it does), its class, whether it is to require gradients
#: (None for both: as it is), its version (None: it has none).
Face = tuple[torch.Tensor, torch.Tensor | None, Any, bool | None, int | None]


@dataclass
class Plan:
    """What a commit does to storages and tensors."""

    bind: Callable[[str, Any], None]
    writes: list[tuple[torch.UntypedStorage, Any]] = field(default_factory=list)
    faces: list[Face] = field(default_factory=list)
    contents: dict[int, tuple[torch.Tensor, dict[str, Any]]] = field(default_factory=dict)
    generators: list[tuple[torch.Generator, bytes]] = field(default_factory=list)
    #: Id, the new object, and the one that had the id.
    binds: list[tuple[str, Any, Any]] = field(default_factory=list)

    def apply(self, undo: Any) -> None:
        """Write everything; what was there before is noted first."""
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            for storage, data in self.writes:
                put(storage, 0, data, undo)
            for face in self.faces:
                _shape(undo, face)
            empty: dict[str, Any] = {}
            contents = {id(face[0]): (face[0], empty) for face in self.faces} | self.contents
            for tensor, beside in contents.values():
                old = {k: dict(v) if k == "attributes" else v for k, v in content(tensor).items()}
                undo.add(partial(_fill, tensor, old))
                _fill(tensor, beside)
            for generator, state in self.generators:
                undo.add(partial(generator.set_state, generator.get_state()))
                generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
            for oid, made, live in self.binds:
                undo.add(partial(self.bind, oid, live))
                self.bind(oid, made)
            for tensor, *_, version in self.faces:
                if version is not None and version > tensor._version:
                    missing = version - tensor._version
                    torch.autograd.graph.increment_version([tensor] * missing)


def _shape(undo: Any, face: Face) -> None:
    """Let a tensor show what it shows on the other side, as a tensor of the same class."""
    live, shows, kind, requires_grad, _ = face
    if requires_grad is None:
        return
    if node_of(live) is not None:
        live.detach_()
    if shows is not None:
        undo.add(partial(setattr, live, "data", live.detach()))
        live.data = shows
    if type(live) is not kind:
        undo.add(partial(setattr, live, "__class__", type(live)))
        live.__class__ = kind
    if live.requires_grad is not requires_grad:
        undo.add(partial(setattr, live, "requires_grad", live.requires_grad))
        live.requires_grad = requires_grad


def node_of(tensor: torch.Tensor) -> Any:
    """Return a tensor's ``grad_fn``; torch's error for a row of a weight that has changed since."""
    try:
        return tensor.grad_fn
    except RuntimeError as error:
        return error.with_traceback(None)


def bits_of(tensor: torch.Tensor) -> dict[str, bool] | None:
    """Return which of its bits are set, as torch's own pickles tell them; None for none."""
    found = {"conj": tensor.is_conj(), "neg": tensor.is_neg()}
    return {name: True for name, bit in found.items() if bit} or None


def content(tensor: torch.Tensor) -> dict[str, Any]:
    """Return what a tensor is beside its memory."""
    out: dict[str, Any] = {}
    is_leaf = node_of(tensor) is None
    if is_leaf:
        for name in _HOOKS:
            if hooks := getattr(tensor, name):
                out[name] = hooks
    elif tensor.retains_grad:
        out["retain"] = True
    if (is_leaf or "retain" in out) and tensor.grad is not None:
        out["grad"] = tensor.grad
    if tensor.__dict__:
        out["attributes"] = tensor.__dict__
    return out


def _fill(tensor: torch.Tensor, content: dict[str, Any]) -> None:
    """Give a tensor gradient, hooks and attributes, and take away those that it has no more."""
    if content.get("retain"):
        tensor.retain_grad()
    is_leaf = node_of(tensor) is None
    if is_leaf or tensor.retains_grad:
        grad = content.get("grad")
        if tensor.grad is not grad:
            set_grad(tensor, grad)
    for name in _HOOKS if is_leaf else ():
        hooks = content.get(name)
        if getattr(tensor, name) is not hooks and (hooks or getattr(tensor, name)):
            setattr(tensor, name, hooks)
    attributes = content.get("attributes", {})
    if tensor.__dict__ is not attributes and (tensor.__dict__ or attributes):
        attributes = dict(attributes)
        tensor.__dict__.clear()
        tensor.__dict__.update(attributes)


def set_grad(tensor: torch.Tensor, grad: torch.Tensor | None) -> None:
    """Give a leaf its gradient, also one that an assignment refuses and a backward left there."""
    if grad is None or (not tensor.is_nested and tensor.layout in (torch.strided, grad.layout)):
        tensor.grad = grad
        return
    tensor.grad = None
    with torch.enable_grad():
        torch.autograd.backward([tensor], [grad])


# ---- bytes


def flat(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a storage's bytes as a tensor that nobody else holds."""
    out = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return out.set_(storage, 0, (storage.nbytes(),), (1,))


def put(storage: torch.UntypedStorage, start: int, data: Any, undo: Any) -> None:
    """Put bytes into a storage from a place on; what it had is in ``data`` then, for ``undo``.

    So nothing is needed beside the two to take it back.  Without ``undo`` the storage is new.
    """
    held = bytearray(data) if memoryview(data).readonly else data
    size = memoryview(held).nbytes
    if not size:
        return
    here = flat(storage)[start : start + size]
    there = torch.frombuffer(held, dtype=torch.uint8)
    if undo is None:
        here.copy_(there)
        return
    for parts in zip(here.split(_PART), there.split(_PART), strict=True):
        if _swap(*parts):
            undo.add(partial(_swap, *parts))


def _swap(here: torch.Tensor, there: torch.Tensor) -> bool:
    """Exchange the bytes of two tensors of one size; return whether they differed."""
    new = there.to(here.device)
    if torch.equal(here, new):
        return False
    old = here.cpu() if here.device.type != "cpu" else here.clone()
    here.copy_(new)
    there.copy_(old)
    return True


def find(tensors: list[torch.Tensor], oid_of: Callable[[Any], str]) -> dict[int, Any]:
    """Return by ``id`` whose count tensors over one storage share, and whether they are views."""
    found: dict[int, tuple[torch.Tensor, bool]] = {}
    equal: dict[int, list[torch.Tensor]] = {}
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors:
            if not tensor.is_inference():
                equal.setdefault(tensor._version, []).append(tensor)
        for several in equal.values():
            for together in _together(several):
                owner = _owner(together, oid_of)
                for tensor in together:
                    if tensor is not owner and node_of(tensor) is None:
                        found[id(tensor)] = (owner, _is_view(tensor, owner))
    return found


def _together(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield those of equal count that go on together; torch says it of views only, so try."""
    if len(tensors) < 2:
        return
    count = tensors[0]._version
    found: dict[int, list[torch.Tensor]] = {}
    preserved: Any = torch.autograd._unsafe_preserve_version_counter(tuple(tensors))
    with preserved:
        for number, tensor in enumerate(tensors, 1):
            if tensor._version == count:
                torch._C._autograd._unsafe_set_version_counter((tensor,), (count + number,))
            found.setdefault(tensor._version, []).append(tensor)
    yield from (together for together in found.values() if len(together) > 1)


def _owner(together: list[torch.Tensor], oid_of: Callable[[Any], str]) -> torch.Tensor:
    bases = [tensor._base for tensor in together if tensor._base is not None]
    whole = [tensor for tensor in together if any(tensor is base for base in bases)]
    return min(whole or together, key=lambda tensor: (tensor._is_view(), oid_of(tensor)))


def _is_view(tensor: torch.Tensor, owner: torch.Tensor) -> bool:
    plain = type(tensor) is torch.Tensor and tensor.dtype is owner.dtype
    bits = tensor.is_conj() == owner.is_conj() and tensor.is_neg() == owner.is_neg()
    return tensor._base is owner and node_of(owner) is None and plain and bits


def joined(owner: torch.Tensor, view: bool, like: torch.Tensor) -> torch.Tensor:
    """Return a new tensor that shows what ``like`` does and shares the count of ``owner``."""
    if view and owner.untyped_storage() is like.untyped_storage():
        with torch.set_grad_enabled(not owner.requires_grad):
            return owner.as_strided(like.size(), like.stride(), like.storage_offset())
    made = owner.detach()
    made.data = like
    return made


@contextmanager
def each_set(objects: Iterable[Any], name: str, value: Any) -> Iterator[None]:
    """Set an attribute of objects for the body, and put back what it was."""
    olds = [(obj, getattr(obj, name)) for obj in objects if getattr(obj, name) is not value]
    for obj, _ in olds:
        setattr(obj, name, value)
    try:
        yield
    finally:
        for obj, old in olds:
            setattr(obj, name, old)
