"""JAX: arrays, and functions that ``jit`` compiles again on the other side.

A compiled function keeps what it read while JAX traced it, whatever a cell changes later.  So the
values that it read then travel with it, and the other side traces it again only while its names
still lead to these.  What a list or a dictionary held then, or what was printed, cannot be told: a
function that touches such stays where it was traced.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

import jax
import numpy
from jax._src import array as array_module
from jax._src import custom_derivatives, pjit

from gpulease.errors import GPULeaseError
from gpulease.sides.names.analysis import code_use
from gpulease.transfer_next import hashing, rebuild, stayed, ways
from gpulease.transfer_next.pickler import travels_by_value

from . import trees

ARRAY: Any = array_module.ArrayImpl
JITTED: Any = type(jax.jit(len))
_SMALL = 4096
#: Attributes that are made again with the function.
_MADE = frozenset({"__wrapped__", "_fun", "_jit_info", "_gpulease_traced"})
_CAN_CHANGE = (list, dict, set, bytearray)
_VALUES = (bool, int, float, complex, str, bytes, type(None), tuple, frozenset)
_missing = object()

#: By name: value, and its digest where it is memory.
_Seen = dict[str, tuple[Any, bytes]]


def reduce_array(_pickler: Any, obj: Any) -> Any:
    """Reduce an array to its values; it is on the receiver's device then."""
    if obj.is_deleted():  # given away to a compiled function (donate_argnums)
        return deleted, (obj.shape, obj.dtype)
    found = numpy.asarray(obj)
    flat = found.ravel().view("u1") if found.size else found.ravel()
    # A copy: what JAX gives away lies in the memory that was here.
    return array, (flat.tobytes(), found.dtype, found.shape, obj.aval.weak_type)


def array(raw: Any, dtype: Any, shape: tuple[int, ...], weak_type: bool) -> Any:
    """Return an array on this side's default device, with the dtype that it had."""
    value = numpy.frombuffer(raw, dtype).reshape(shape)
    with jax.enable_x64(dtype.itemsize == 8 or jax.config.jax_enable_x64):
        made: Any = jax.device_put(value.copy())
    made.aval = made.aval.update(weak_type=weak_type)
    return made


def deleted(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array that has been given away."""
    made = jax.device_put(numpy.zeros(shape, dtype))
    made.delete()
    return made


# ---- functions


def reduce_jitted(pickler: Any, obj: Any) -> Any:
    """Reduce a compiled function to the function, and what it read while it was traced."""
    if name := _name(obj):
        return name
    fun, seen = _traced(obj, pickler.met.namespace)
    if type(seen) is str:
        return rebuild.stayed, (pickler.met.stays.id_of(obj), seen, stayed.class_of(obj))
    attributes = {name: value for name, value in vars(obj).items() if name not in _MADE}
    return jitted, (fun, obj._jit_info), (seen, attributes), None, None, fill_jitted


def _name(obj: Any) -> str:
    """Return the name by which a module has this very object (``jax.nn.relu``), '' for none.

    Trees that differ in such an object differ in structure, so it has to stay the same one.
    """
    module = sys.modules.get(str(getattr(obj, "__module__", "")))
    name = str(getattr(obj, "__qualname__", None) or getattr(obj, "__name__", ""))
    own = module is not None and module.__name__ != "__main__"
    return name if own and getattr(module, name, None) is obj else ""


def _traced(obj: Any, space: dict[str, Any]) -> tuple[Any, Any]:
    """Return the function, and what it read, in words why that cannot be told, or None."""
    known = getattr(obj._fun, "gpulease_traced", None)
    if known is not None:
        fun, seen = known
        return fun, (dict(seen) if seen is not None else _look(obj, fun, space))
    return obj._fun, _look(obj, obj._fun, space)


def _look(obj: Any, fun: Any, space: dict[str, Any]) -> Any:
    own = vars(obj)
    if "_gpulease_traced" not in own:
        if not obj._cache_size():
            return None
        own["_gpulease_traced"] = _read_by(fun, space)
    return own["_gpulease_traced"]


def _read_by(fun: Any, space: dict[str, Any]) -> Any:
    """Return the names of the notebook that a function reads, or why that cannot be told."""
    seen: _Seen = {}
    pending, known = [fun], set[int]()
    while pending:
        each = pending.pop()
        each = getattr(each, "__wrapped__", each) if type(each) is JITTED else each
        if type(each) is not types.FunctionType or id(each) in known or not travels_by_value(each):
            continue
        known.add(id(each))
        use = code_use(each.__code__)
        if use.unbounded or "print" in use.reads:
            what = "prints" if "print" in use.reads else "looks names up"
            return f"a function that jax has compiled and that {what}"
        cells = [cell.cell_contents for cell in each.__closure__ or () if _is_full(cell)]
        read = use.reads & space.keys() if each.__globals__ is space else ()
        for name, value in [*((name, space[name]) for name in read), *((None, c) for c in cells)]:
            if isinstance(value, _CAN_CHANGE):
                word = name or f"a {type(value).__name__} around it"
                return f"a function that jax has compiled with what {word} held then"
            if name is not None:
                seen[name] = value, _digest(value)
            pending.append(value)
    return dict(sorted(seen.items()))


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty one raises
    except ValueError:
        return False
    return True


def _digest(value: Any) -> bytes:
    if not isinstance(value, numpy.ndarray) or value.dtype.hasobject:
        return b""
    return hashing.buffer_digest(memoryview(value.tobytes()))


def _is_same(value: Any, digest: bytes, now: Any) -> bool:
    if isinstance(value, _VALUES) and type(value) is type(now):
        return bool(value == now)
    return value is now and _digest(now) == digest


def jitted(fun: Any, info: Any) -> Any:
    """Return a function that is compiled when it is called."""
    seen: _Seen = {}
    space = rebuild.here().namespace

    @functools.wraps(fun)
    def traced(*args: Any, **kwargs: Any) -> Any:
        for name, (value, digest) in seen.items():
            if not _is_same(value, digest, space.get(name, _missing)):
                sentence = (
                    f"{fun.__name__} was compiled by jax on the other side with another {name}, "
                    "which it would go on using there."
                )
                step = f"Run the cell that defines {fun.__name__} again."
                raise GPULeaseError("cannot_move", sentence, next_step=step)
        return fun(*args, **kwargs)

    traced.gpulease_traced = fun, seen  # type: ignore[attr-defined]
    return pjit._cpp_pjit(traced, info)


def fill_jitted(made: Any, state: tuple[_Seen | None, dict[str, Any]]) -> None:
    """Give a compiled function its attributes, and what it read when it was traced."""
    seen, attributes = state
    fun, own = made._fun.gpulease_traced
    if seen is None:
        made._fun.gpulease_traced = fun, None
    else:
        own.update(seen)
    vars(made).update(attributes)
    vars(made)["__wrapped__"] = fun


def reduce_custom(_pickler: Any, obj: Any) -> Any:
    """Reduce a function with derivatives of its own: its ``__new__`` wants the function."""
    return _name(obj) or (rebuild.bare, (type(obj),), vars(obj), None, None, rebuild.fill_bare)


ways.enter(
    {
        ARRAY: reduce_array,
        JITTED: reduce_jitted,
        custom_derivatives.custom_jvp: reduce_custom,
        custom_derivatives.custom_vjp: reduce_custom,
    },
    raw=lambda _kind: False,
    values=(jax.tree_util.PyTreeDef, type(jax.tree_util.default_registry), pjit.PjitInfo),
    frozen=(ARRAY, JITTED),
)
ways.registers.append(trees.REGISTER)
