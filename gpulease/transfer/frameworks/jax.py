"""JAX and what is built on it: arrays, functions of its own by name, a class's place in the trees.

JAX, flax and equinox keep beside a class, in tables of their own, how an instance is taken apart
into leaves.  A class that is made again on the other side has to be entered there again: without
that ``jit`` takes a model for one leaf, or looks for it in vain.
"""

from __future__ import annotations

import dataclasses
import gc
import operator
import sys
from typing import Any

import jax
import numpy
from jax._src import array as array_module
from jax._src import custom_derivatives, tree_util

from . import away
from .base import Aside, Inside, Packing, set_attributes

#: How a class was entered, and with what: enough to enter its counterpart in the same way.
Entry = tuple[Any, ...]


_ARRAY: Any = array_module.ArrayImpl
_JITTED: Any = type(jax.jit(len))
_CUSTOM: tuple[type, ...] = (custom_derivatives.custom_jvp, custom_derivatives.custom_vjp)
_CALLABLES: tuple[type, ...] = (_JITTED, *_CUSTOM)
_STRUCTURE: type = jax.tree_util.PyTreeDef
#: In a jitted function and in each structure is one of JAX's registers of trees, and with it every
#: class that anybody in this process ever entered.
_REGISTER: type = type(tree_util.default_registry)


class _Jax(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return kind in (_ARRAY, _STRUCTURE, _REGISTER) or kind in _CALLABLES

    def is_imported(self, obj: Any) -> bool:
        return type(obj) is _REGISTER or (type(obj) in _CALLABLES and bool(_name(obj)))

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        if type(obj) is not _ARRAY:
            return Inside(gc.get_referents(obj))
        if obj.is_deleted() or len(obj.devices()) != 1:
            return Inside([])
        low = obj.unsafe_buffer_pointer()
        return Inside([], [(low, low + obj.nbytes)])

    def reduce(self, obj: Any, packing: Packing) -> Any:
        if type(obj) is not _ARRAY:
            if type(obj) in _CALLABLES and (name := _name(obj)):
                return name
            if type(obj) is _JITTED:
                return _reduce_jitted(obj)
            return _reduce_custom(obj) if type(obj) in _CUSTOM else NotImplemented
        if obj.is_deleted():  # given away to a compiled function (donate_argnums)
            return deleted, (obj.shape, obj.dtype)
        if packing.structure and obj.nbytes >= away.SMALL:
            return away.reduction(obj, ", ".join(packing.group))
        return array, (numpy.asarray(obj), obj.aval.weak_type)

    def entry(self, cls: type) -> Entry | None:
        if _is_equinox(cls):
            module = sys.modules["equinox._module._module"]
            abstract = cls in module._abstract_module_registry
            return "equinox", bool(module._has_dataclass_init[cls]), abstract
        if _is_nnx(cls):
            return ("nnx",)
        found = tree_util._registry.get(cls)
        return None if found is None else _from_functions(cls, found.to_iter, found.from_iter)

    def enter(self, cls: type, entry: Entry) -> None:
        kind, *rest = entry
        if kind == "equinox":
            _enter_equinox(cls, *rest)
        elif kind == "nnx":
            _enter_nnx(cls)
        elif cls not in tree_util._registry:  # JAX takes each class once
            _enter(cls, kind, rest)


def _name(obj: Any) -> str:
    """Return the name by which a module has this very object (``jax.nn.relu``), '' for none.

    Trees that differ in such an object differ in structure, so it has to stay the same one.
    """
    module = sys.modules.get(str(getattr(obj, "__module__", "")))
    name = str(getattr(obj, "__qualname__", None) or getattr(obj, "__name__", ""))
    own = module is not None and module.__name__ != "__main__"
    return name if own and getattr(module, name, None) is obj else ""


def _reduce_jitted(obj: Any) -> Any:
    """Reduce a jitted function with its attributes: its own way leaves out even its name."""
    maker, arguments, state = obj.__reduce_ex__(5)[:3]
    return maker, arguments, (state, dict(vars(obj))), None, None, jitted


def jitted(made: Any, state: tuple[Any, dict[str, Any]]) -> None:
    """Fill an empty jitted function."""
    own, attributes = state
    made.__setstate__(own)
    vars(made).update(attributes)


def _reduce_custom(obj: Any) -> Any:
    """Reduce a function with derivatives of its own: its ``__new__`` wants the function."""
    return empty, (type(obj),), vars(obj), None, None, set_attributes


def empty(kind: type) -> Any:
    """Return an instance that is to be filled."""
    return object.__new__(kind)


def array(value: Any, weak_type: bool) -> Any:
    """Return an array on this side's default device, with the dtype that it had."""
    with jax.enable_x64(value.dtype.itemsize == 8 or jax.config.jax_enable_x64):
        made: Any = jax.device_put(value)
    made.aval = made.aval.update(weak_type=weak_type)
    return made


def deleted(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array that has been given away."""
    made = array(numpy.zeros(shape, dtype), weak_type=False)
    made.delete()
    return made


# ---- classes


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


FRAMEWORK = _Jax()
