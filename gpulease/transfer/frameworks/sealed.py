"""Values that one side can pack and the other cannot load: kept there as bytes, unopened.

A ``Sealed`` stands in such an object's place, so that everything around it comes home.  Its bytes
are whole in themselves; they go to the next companion as they came, and are opened there.  What
does not open stays sealed: bytes are never given up for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import platform
from collections.abc import Collection
from typing import Any, NamedTuple, NoReturn

import cloudpickle

from gpulease.errors import GPULeaseError
from gpulease.sides.libraries import library
from gpulease.transfer_next.refuse import RefusedError, refused_kind

from .base import Aside, Inside, Packing, Stage, staged

#: Module and qualified name of what did not load; without a name, everything of that package.
Culprit = tuple[str, str]


class Seal(NamedTuple):
    """What is known of a sealed object, and its bytes."""

    oid: str
    #: Its class, in full.
    kind: str
    #: Versions it was made with, as "package version".
    made: tuple[str, ...]
    data: bytearray
    #: Why it does not open here.
    reason: str


class Sealed:
    """Stands for an object that cannot be loaded here; whatever is asked of it raises."""

    __slots__ = ("__weakref__", "_gpulease_seal")
    _gpulease_seal: Seal

    def __init__(self, seal: Seal) -> None:
        object.__setattr__(self, "_gpulease_seal", seal)

    def __repr__(self) -> str:
        return f"<{self._gpulease_seal.kind}, sealed: {self._gpulease_seal.reason}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(self)

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        _refuse(self)


def _refuse(sealed: Sealed, *_: Any) -> NoReturn:
    raise GPULeaseError(
        "sealed", sentence(sealed), next_step="Use it in a GPU cell; it is whole there."
    )


_READS = """
call iter len bool getitem setitem delitem contains enter exit float int index array add radd sub
rsub mul rmul truediv rtruediv matmul rmatmul pow lt le gt ge
"""
for _name in _READS.split():
    setattr(Sealed, f"__{_name}__", _refuse)


def sentence(sealed: Sealed) -> str:
    """Say why a value is sealed here."""
    seal = sealed._gpulease_seal
    made = ", ".join(seal.made)
    return f"This {seal.kind} is kept sealed here, for it cannot be loaded: {seal.reason} ({made})."


def kind_of(sealed: Sealed) -> str:
    """Return the class of what is sealed."""
    return sealed._gpulease_seal.kind


# ---- sealing


def is_wanted(obj: Any, culprits: Collection[Culprit]) -> bool:
    """Say whether ``obj`` is one of those that the other side cannot load."""
    if isinstance(obj, type):
        return _names(obj, culprits)
    if any(_names(base, culprits) for base in type(obj).__mro__):
        return True
    return _has_a_name(obj) and _names(obj, culprits)  # a function travels by it


def _has_a_name(obj: Any) -> bool:
    """Say whether an object is called by a name; no ``__getattr__`` of its class is asked."""
    try:
        return isinstance(object.__getattribute__(obj, "__qualname__"), str)
    except AttributeError:
        return False


def _names(named: Any, culprits: Collection[Culprit]) -> bool:
    module = getattr(named, "__module__", None)
    if not isinstance(module, str):
        return False
    return (module.partition(".")[0], "") in culprits or (
        module,
        named.__qualname__,
    ) in culprits


def is_made_by(reduced: Any, culprits: Collection[Culprit]) -> bool:
    """Say whether a reduction calls what the other side cannot call."""
    return isinstance(reduced, tuple) and is_function(reduced[0]) and _names(reduced[0], culprits)


def is_function(obj: Any) -> bool:
    """Say whether ``obj`` is called by a name that a pickle has."""
    return callable(obj) and _has_a_name(obj) and not isinstance(obj, type)


def seal(obj: Any, packing: Packing) -> Any:
    """Return the reduction of an object as bytes of its own; raises RefusedError."""
    kind = obj if isinstance(obj, type) or _has_a_name(obj) else type(obj)
    full = f"{kind.__module__}.{kind.__qualname__}"
    refused = refused_kind(obj)
    if refused is not None:
        raise RefusedError(refused, obj)
    try:
        data = cloudpickle.dumps(obj, protocol=5)
    except Exception as error:  # whatever its own way of being pickled raises
        raise RefusedError(f"a {full}, which does not load in your notebook") from error
    oid = packing.oid(obj)
    # Writable: a pickle looks into read-only memory, and there is none where it is not sent.
    memory = packing.memory(oid, bytearray(data))
    return opened, (oid, full, _versions(kind.__module__), memory)


def _versions(module: str) -> tuple[str, ...]:
    package = module.partition(".")[0]
    made: tuple[str, ...] = ()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        made = (f"{package} {importlib.metadata.version(package)}",)
    torch = library("torch")
    if torch is not None and torch.cuda.is_initialized():
        made += (str(torch.cuda.get_device_name()),)
    return (*made, f"Python {platform.python_version()}")


@staged
def opened(stage: Stage, oid: str, kind: str, made: tuple[str, ...], data: Any) -> Any:
    """Return the object where it opens, or lives here already; one that stands for it else."""
    live = stage.live(oid)
    if live is not None and (stage.registry.side == "a" or data is None):
        return live  # home cannot have changed what it could not open
    if data is None:
        raise stage.lack(oid)
    try:
        found = cloudpickle.loads(data)
    except Exception as error:  # noqa: BLE001 - whatever its own way of being loaded raises
        text = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {text[0][:200] if text else ''}"
        kept = data if isinstance(data, bytearray) else bytearray(data)
        found = Sealed(Seal(oid, kind, made, kept, reason))
    return stage.make(oid, found)


class _Sealing(Aside):
    """See ``base.Framework``: how what is sealed here goes on its way again."""

    def claims(self, kind: type) -> bool:
        return kind is Sealed

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        data = obj._gpulease_seal.data
        low = ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))
        return Inside([], [(low, low + len(data))])

    def reduce(self, obj: Any, packing: Packing) -> Any:
        found: Seal = obj._gpulease_seal
        memory = packing.memory(found.oid, found.data)
        return opened, (found.oid, found.kind, found.made, memory)


FRAMEWORK = _Sealing()
