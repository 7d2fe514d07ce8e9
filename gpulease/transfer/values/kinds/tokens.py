"""What a pickle of ours refers to: the few functions that rebuild things on the other side.

Owns only rebuilding.  ``unit``, ``namespace`` and ``sentinel`` are markers: the loader of a
staging puts its own methods in their place, so that a pickle means nothing without a staging.
"""

from __future__ import annotations

import importlib
import operator
from typing import Any

from gpulease.transfer_next import cloudpickle_names
from gpulease.transfer_next.hashing import buffer_digest


def unit(oid: str) -> Any:
    """Stand for the unit ``oid`` of the staging that loads this."""
    raise RuntimeError(f"unit {oid} outside a staging")


def namespace() -> Any:
    """Stand for the receiver's user namespace."""
    raise RuntimeError("namespace outside a staging")


def module(name: str, digest: str) -> Any:
    """Stand for an installed module, or a person's own module file with this digest."""
    raise RuntimeError(f"module {name} {digest} outside a staging")


def attribute(owner: Any, name: str) -> Any:
    """Return what a person's own module has under a dotted name."""
    return operator.attrgetter(name)(owner)


def array(buffer: Any, dtype: Any, shape: tuple[int, ...], order: Any, writeable: bool) -> Any:
    """Return an array over ``buffer``; a small one owns its memory, as one made here would."""
    import numpy  # the pickled dtype has imported it already

    if memoryview(buffer).nbytes == 0:
        out = numpy.empty(shape, dtype, order=order)
    else:
        out = numpy.ndarray(shape, dtype, buffer=buffer, order=order)
        if out.nbytes <= 2**20 or not out.flags.writeable:
            out = out.copy(order="K")
    out.flags.writeable = writeable
    return out


def face(rebuild: Any, args: tuple[Any, ...], kind: Any, attributes: dict[str, Any]) -> Any:
    """Return the array that ``rebuild`` makes, as one of its class and with its attributes."""
    out = rebuild(*args).view(kind)
    if attributes:
        out.__dict__.update(attributes)
    return out


def memmap(  # noqa: PLR0917 - a pickle passes arguments by position
    filename: str,
    dtype: Any,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    digest: bytes,
) -> Any:
    """Return a read-only map of the same part of the same file; raises where it is another."""
    import numpy

    whole = numpy.memmap(filename, "u1", "r")
    reach = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low = offset + sum(step for step in reach if step < 0)
    high = offset + sum(step for step in reach if step > 0) + dtype.itemsize
    if low < 0 or high > whole.size:
        raise ValueError(f"{filename} is shorter here")
    out: Any = numpy.ndarray.__new__(
        numpy.memmap, shape, dtype, buffer=whole, offset=offset, strides=strides
    )
    if content_digest(out) != digest:
        raise ValueError(f"{filename} holds something else here")
    return out


def content_digest(array_: Any) -> bytes:
    """Return the digest of an array's elements."""
    import numpy

    flat = numpy.ascontiguousarray(array_.view(numpy.ndarray)).reshape(-1).view("u1")
    return buffer_digest(flat.data)


def storage(buffer: Any) -> bytearray:
    """Return writable memory that several views share."""
    if isinstance(buffer, bytearray):
        return buffer
    view = memoryview(buffer)
    owner = view.obj
    return owner if isinstance(owner, bytearray) and len(owner) == len(view) else bytearray(view)


def view(  # noqa: PLR0917 - a pickle passes arguments by position
    memory: Any,
    dtype: Any,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    writeable: bool,
) -> Any:
    """Return an array over ``memory`` that others share (``offset`` in bytes)."""
    import numpy

    if isinstance(memory, numpy.ndarray):
        return _view_of(memory, dtype, shape, strides, offset, writeable)
    out = numpy.ndarray(shape, dtype, buffer=memory, offset=offset, strides=strides)
    out.flags.writeable = writeable
    return out


def _view_of(  # noqa: PLR0917 - as above
    whole: Any,
    dtype: Any,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    writeable: bool,
) -> Any:
    """Return a view whose ``base`` is ``whole``, which may be read-only where the view is not."""
    import numpy

    locked = writeable and not whole.flags.writeable
    if locked:
        whole.flags.writeable = True
    # As bytes: a buffer of dates, or in Fortran's order, numpy does not take.
    raw = (whole if whole.flags.c_contiguous else whole.T).reshape(-1).view("u1")
    out = numpy.ndarray(shape, dtype, buffer=raw, offset=offset, strides=strides)
    out.flags.writeable = writeable
    if locked:
        whole.flags.writeable = False
    return out


def view_of_objects(
    base: Any, shape: tuple[int, ...], strides: tuple[int, ...], start: int, writeable: bool
) -> Any:
    """Return a view of an array of objects, from its element ``start`` (in memory's order)."""
    import numpy

    rest = base.ravel(order="K")[start:]
    return numpy.lib.stride_tricks.as_strided(rest, shape, strides, writeable=writeable)


def shell() -> Any:
    """Return what ``get_ipython()`` gives here."""
    return importlib.import_module("IPython").get_ipython()


def type_variable(module: str, parts: tuple[Any, ...]) -> Any:
    """Return a type variable of the notebook."""
    made = cloudpickle_names.variable_of(parts)
    if made.__module__ != module:  # one that is here keeps its text: a pickle tells which it is
        made.__module__ = module
    return made


def member(cls: Any, name: str) -> Any:
    """Return the member ``name`` of an enumeration whose content may not be here yet."""
    return cls._member_map_[name]


def combination(cls: Any, value: Any) -> Any:
    """Return the unnamed combination of flags with this value."""
    return cls(value)


def instance(cls: type) -> Any:
    """Return an empty instance; the class's own ``__new__`` ran when it was made."""
    return object.__new__(cls)


def tuple_of(cls: type, items: tuple[Any, ...]) -> Any:
    """Return a named tuple; its class may not be filled yet."""
    return tuple.__new__(cls, items)


def container_state(obj: Any, state: tuple[Any, list[Any], list[tuple[Any, Any]]]) -> None:
    """Fill a subclass of list or dict by the builtin's means, whatever it overrides."""
    attributes, items, pairs = state
    if isinstance(obj, list):
        list.extend(obj, items)
    for key, value in pairs:
        dict.__setitem__(obj, key, value)
    if attributes is None:
        return
    if hasattr(type(obj), "__setstate__"):
        obj.__setstate__(attributes)
        return
    instance_state(obj, attributes)


def instance_state(obj: Any, attributes: Any) -> None:
    """Give an instance its attributes, whatever it answers when it is asked for one."""
    space, slots = attributes if isinstance(attributes, tuple) else (attributes, None)
    if space:
        obj.__dict__.update(space)
    for name, value in (slots or {}).items():
        object.__setattr__(obj, name, value)


def exception(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """Return an exception with these arguments; its class's constructor ran when it was made."""
    return BaseException.__new__(cls, *args)


def exception_state(exc: BaseException, state: tuple[Any, ...]) -> None:
    """Give a rebuilt exception its attributes, cause and context (frames do not travel)."""
    space, cause, context, suppress, rest = state
    if rest is not None:
        exc.__setstate__(rest)
    exc.__dict__.update(space)
    exc.__cause__, exc.__context__ = cause, context
    exc.__suppress_context__ = suppress
