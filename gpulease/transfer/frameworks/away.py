"""Arrays and frames whose values stay on the GPU for their size: home shows all but the values.

Whatever would read or write a value raises the explained error; so does pickling, for a file
without values would look like one that has them.  ``torch.away`` is the same for tensors.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from gpulease.errors import GPULeaseError
from gpulease.transfer_next.refuse import RefusedError

from .base import Aside, Inside, Packing

#: Memory of fewer bytes is there with its values.
SMALL = 64 * 2**10
#: What is told of an object, where it has it; of these the second are asked as it is.
_TOLD = ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides", "weak_type", "empty")
_OF_FRAMES = ("columns", "dtypes", "name")


class Facts(NamedTuple):
    """What is known of an object: whose it is, in words, its class, and what is told of it."""

    label: str
    kind: type
    told: dict[str, Any]


class Away:
    """Stands at home for an array or a frame whose values are on the GPU; has its class."""

    __slots__ = ("__weakref__", "_gpulease_facts")
    _gpulease_facts: Facts

    def __init__(self, facts: Facts) -> None:
        object.__setattr__(self, "_gpulease_facts", facts)

    @property
    def __class__(self) -> Any:
        return self._gpulease_facts.kind

    @__class__.setter
    def __class__(self, value: Any) -> None:
        _refuse(self)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        _, kind, told = self._gpulease_facts
        dtype = f", {told['dtype']}" if "dtype" in told else ""
        return f"<{kind.__name__} {told['shape']}{dtype}: the values are on the GPU>"

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __len__(self) -> int:
        shape: tuple[int, ...] = self._gpulease_facts.told["shape"]
        if not shape:
            raise TypeError("len() of unsized object")
        return shape[0]

    def __getattr__(self, name: str) -> Any:
        _, kind, told = self._gpulease_facts
        if name in told:
            return told[name]
        if not hasattr(kind, name) and (name[:1] == "_" or not hasattr(kind, "columns")):
            raise AttributeError(name)  # a question whether it is of some kind
        return _refuse(self)

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        _refuse(self)


def refusal(label: str) -> GPULeaseError:
    """Return the error for whoever wants a value of what ``label`` names."""
    return GPULeaseError(
        "too_big_for_home",
        f"The values of {label} are on the GPU: your notebook's memory does not hold them, "
        "only their structure is here.",
        next_step="Use it in a GPU cell, or save it to a file there.",
    )


def _refuse(away: Away, *_: Any, **_named: Any) -> NoReturn:
    raise refusal(away._gpulease_facts.label)


_READS = """
iter bool getitem setitem delitem contains float int index complex array array_ufunc array_function
eq ne lt le gt ge add radd iadd sub rsub isub mul rmul imul truediv rtruediv floordiv rfloordiv mod
rmod matmul rmatmul pow rpow and rand or ror xor rxor neg pos abs invert
"""
for _name in _READS.split():
    setattr(Away, f"__{_name}__", _refuse)


def stand_in(label: str, kind: type, told: dict[str, Any]) -> Away:
    """Return what stands for an object of class ``kind``."""
    return Away(Facts(label, kind, told))


def reduction(obj: Any, label: str, *, of_frame: bool = False) -> Any:
    """Return the reduction of an array, or a frame, to what is told of it."""
    found = {name: getattr(obj, name, None) for name in _TOLD}
    told = {name: value for name, value in found.items() if value is not None}
    if of_frame and getattr(getattr(obj, "columns", None), "nbytes", 0) < SMALL:
        told |= {name: getattr(obj, name) for name in _OF_FRAMES if hasattr(obj, name)}
    return stand_in, (label, type(obj), told)


class _Standing(Aside):
    """See ``base.Framework``: what stands for values is never more than that."""

    def claims(self, kind: type) -> bool:
        return kind is Away

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside([])

    def reduce(self, obj: Any, packing: Packing) -> Any:
        facts: Facts = obj._gpulease_facts
        if not packing.structure:
            raise RefusedError(f"the structure of {facts.label} alone: its values are on the GPU")
        return stand_in, tuple(facts)


FRAMEWORK = _Standing()
