"""JAX: arrays, and functions that ``jit`` compiles again on the other side.

A compiled function keeps what it read while JAX traced it, whatever a cell changes later.  So the
values that it read then travel with it, and the other side traces it again only while its names
still lead to these.  What a list or a dictionary held then, or what was printed, cannot be told: a
function that touches such stays where it was traced.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
import types
from typing import Any

import jax
import numpy
from jax._src import array as array_module
from jax._src import custom_derivatives, pjit, tree_util

from gpulease.errors import GPULeaseError
from gpulease.sides.names.analysis import code_use
from gpulease.transfer import pieces, rebuild, stayed, ways
from gpulease.transfer.by_class import travels_by_value

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
    return pieces.buffer_digest(memoryview(value.tobytes()))


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


#: How a class was entered, and with what: enough to enter its counterpart in the same way.
Entry = tuple[Any, ...]


def entry_of(cls: type) -> Entry | None:
    """Return how a class was entered, None where it was not."""
    if _is_equinox(cls):
        module = sys.modules["equinox._module._module"]
        abstract = cls in module._abstract_module_registry
        return "equinox", bool(module._has_dataclass_init[cls]), abstract
    if _is_nnx(cls):
        return ("nnx",)
    found = tree_util._registry.get(cls)
    return None if found is None else _from_functions(cls, found.to_iter, found.from_iter)


def enter(cls: type, entry: Entry) -> None:
    """Enter a class in the same way."""
    kind, *rest = entry
    if kind == "equinox":
        _enter_equinox(cls, *rest)
    elif kind == "nnx":
        _enter_nnx(cls)
    elif cls not in tree_util._registry:  # JAX takes each class once
        _enter(cls, kind, rest)


def _from_functions(cls: type, take_apart: Any, make: Any) -> Entry:
    """Tell from what JAX keeps by which of its functions a class was registered."""
    maker = str(getattr(take_apart, "__qualname__", "")).partition(".")[0]
    if getattr(take_apart, "__module__", "") != tree_util.__name__:
        maker = ""
    if maker == "register_dataclass":
        values = _closure(take_apart)
        return "dataclass", values["data_fields"], values["meta_fields"]
    if maker == "register_static":
        return ("static",)
    if maker == "register_pytree_with_keys":
        with_keys = _closure(take_apart)["flatten_with_keys"]
        if isinstance(with_keys, operator.methodcaller):
            return ("keyed methods",)
        return "keyed", with_keys, make
    if isinstance(take_apart, operator.methodcaller):
        return ("keyed methods" if hasattr(cls, "tree_flatten_with_keys") else "methods",)
    return "functions", take_apart, make


def _closure(function: Any) -> dict[str, Any]:
    names = function.__code__.co_freevars
    return dict(zip(names, (c.cell_contents for c in function.__closure__), strict=True))


def _enter(cls: Any, kind: str, rest: list[Any]) -> None:
    if kind == "dataclass":
        fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        left = [f.name for f in fields if f.init and f.name not in {*rest[0], *rest[1]}]
        tree_util.register_dataclass(cls, *rest, drop_fields=left)
    elif kind == "static":
        tree_util.register_static(cls)
    elif kind == "methods":
        tree_util.register_pytree_node_class(cls)
    elif kind == "keyed methods":
        tree_util.register_pytree_with_keys_class(cls)
    elif kind == "keyed":
        tree_util.register_pytree_with_keys(cls, *rest)
    else:
        tree_util.register_pytree_node(cls, *rest)


# ---- equinox: what its metaclass does once the class is there (equinox._module._module)


def _is_equinox(cls: type) -> bool:
    module = sys.modules.get("equinox._module._module")
    return module is not None and cls in module._module_info


def _enter_equinox(cls: Any, has_init: bool, abstract: bool) -> None:
    import equinox._module._module as module

    if cls in module._module_info:
        return
    fields = dataclasses.fields(cls)
    names = tuple(field.name for field in fields)
    if abstract:
        module._abstract_module_registry.add(cls)
    module._has_dataclass_init[cls] = has_init
    module._module_info[cls] = module._ModuleInfo(names, frozenset(names))
    flatten, flatten_with_keys, unflatten = module.generate_flatten_functions(cls, fields)
    tree_util.register_pytree_with_keys(
        cls, flatten_with_keys, module.ft.partial(unflatten, cls), flatten
    )


# ---- flax.nnx: what its base class does in ``__init_subclass__`` (flax.nnx.pytreelib)


def _is_nnx(cls: type) -> bool:
    module = sys.modules.get("flax.nnx.pytreelib")
    return module is not None and issubclass(cls, module.Pytree)


def _enter_nnx(cls: Any) -> None:
    from flax.nnx import graphlib

    if cls in graphlib.GRAPH_REGISTRY:
        return
    graphlib.register_graph_node_type(
        type=cls,
        flatten=cls._graph_node_flatten,
        set_key=cls._graph_node_set_key,
        pop_key=cls._graph_node_pop_key,
        create_empty=cls._graph_node_create_empty,
        clear=cls._graph_node_clear,
        init=cls._graph_node_init,
    )
    if cls._pytree__is_pytree:
        tree_util.register_pytree_with_keys(
            cls, cls._pytree__flatten_with_paths, cls._pytree__unflatten, cls._pytree__flatten
        )


ways.enter(
    {
        ARRAY: reduce_array,
        JITTED: reduce_jitted,
        custom_derivatives.custom_jvp: reduce_custom,
        custom_derivatives.custom_vjp: reduce_custom,
    },
    values=(jax.tree_util.PyTreeDef, type(jax.tree_util.default_registry), pjit.PjitInfo),
    frozen=(ARRAY, JITTED),
)
ways.registers.append((entry_of, enter))
