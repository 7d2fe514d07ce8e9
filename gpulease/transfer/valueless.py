"""What stands at home for an array, a frame or a tensor whose values are too large to come.

It tells what needs no value.  Whatever would read or write one raises the explained error; so does
pickling, for a file without values would look like one that has them.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, NoReturn

from gpulease.errors import GPULeaseError
from gpulease.sides.libraries import library

from . import faces, ways
from .refuse import RefusedError

#: Memory of fewer bytes comes with its values.
SMALL = 64 * 2**10
#: Attributes that are told of an object that has them, and more of a frame with few columns.
_TOLD = ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides", "weak_type", "empty")
_OF_FRAMES = ("columns", "dtypes", "name")


class Facts(NamedTuple):
    """The variables that hold an object, in words, its class, and the attributes that are told."""

    label: str
    kind: type
    told: dict[str, Any]


class Valueless:
    """Stands for an array or a frame, and has its class."""

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
    """Return the error of a read of values that the variables in ``label`` hold."""
    return GPULeaseError(
        "too_big_for_home",
        f"The values of {label} are on the GPU: your notebook's memory does not hold them, "
        "only their structure is here.",
        next_step="Use it in a GPU cell, or save it to a file there.",
    )


def _refuse(found: Valueless, *_: Any, **_named: Any) -> NoReturn:
    raise refusal(facts_of(found).label)


def facts_of(found: Valueless) -> Facts:
    """Return what is known of what one stands for."""
    facts: Facts = object.__getattribute__(found, "_gpulease_facts")
    return facts


_READS = """
iter bool getitem setitem delitem contains float int index complex array array_ufunc array_function
eq ne lt le gt ge add radd iadd sub rsub isub mul rmul imul truediv rtruediv floordiv rfloordiv mod
rmod matmul rmatmul pow rpow and rand or ror xor rxor neg pos abs invert
"""
for _name in _READS.split():
    setattr(Valueless, f"__{_name}__", _refuse)


def stand_in(label: str, kind: type, told: dict[str, Any]) -> Valueless:
    """Return what stands for an object of class ``kind``."""
    return Valueless(Facts(label, kind, told))


# ---- how a structure is packed


def way(kind: type, usual: ways.Reduce | None) -> ways.Reduce | None:
    """Return how objects of a class are reduced in a structure, where values are left out."""
    if kind is Valueless:
        return lambda _pickler, obj: (stand_in, tuple(facts_of(obj)))
    for find in ways.valueless:
        if (found := find(kind, usual)) is not None:
            return found
    for size_of, is_frame in _kinds(kind):
        return _left_out(size_of, usual, is_frame=is_frame)
    return usual


def _kinds(kind: type) -> Any:
    numpy, pandas = library("numpy"), library("pandas")
    if numpy is not None and issubclass(kind, numpy.ndarray):
        yield _size_of_array, False
    jax = getattr(sys.modules.get("jax"), "Array", None)
    if jax is not None and issubclass(kind, jax):
        yield lambda _pickler, obj: obj.nbytes, False
    if pandas is not None and issubclass(kind, (pandas.DataFrame, pandas.Series, pandas.Index)):
        yield _size_of_frame, True


def _left_out(size_of: Any, usual: ways.Reduce | None, *, is_frame: bool) -> ways.Reduce:
    def reduce(pickler: Any, obj: Any) -> Any:
        if size_of(pickler, obj) < SMALL:
            return pickler.as_usual(obj, type(obj), usual)
        # Once in a survey: what a frame tells is another object each time.
        known = pickler.met.notes.setdefault("valueless", {})
        if id(obj) not in known:
            known[id(obj)] = pickler.met.structure_of, type(obj), told_of(obj, is_frame=is_frame)
        return stand_in, known[id(obj)]

    return reduce


def told_of(obj: Any, *, is_frame: bool) -> dict[str, Any]:
    """Return the attributes of an array or a frame that are known where its values are not."""
    found = {name: getattr(obj, name, None) for name in _TOLD}
    told = {name: value for name, value in found.items() if value is not None}
    if is_frame and getattr(getattr(obj, "columns", None), "nbytes", 0) < SMALL:
        told |= {name: getattr(obj, name) for name in _OF_FRAMES if hasattr(obj, name)}
    return told


def _size_of_array(pickler: Any, found: Any) -> int:
    """Return the bytes of the memory that an array shows, be it a part of it."""
    if not found.size or found.dtype.hasobject:
        return int(found.nbytes)
    try:
        root, exporter = pickler.met.memory.owner(found)
    except RefusedError:
        return int(found.nbytes)
    return max(int(found.nbytes), int(root.nbytes if exporter is None else len(exporter)))


def _size_of_frame(pickler: Any, found: Any) -> int:
    sizes = (_size_of_array(pickler, each) for each in faces.arrays_of_pandas(found))
    return max(faces.inside_pandas(found)[0], *sizes, 0)
