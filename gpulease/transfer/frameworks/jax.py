"""JAX and what is built on it: arrays, functions of its own by name, a class's place in the trees.

JAX, flax and equinox keep beside a class, in tables of their own, how an instance is taken apart
into leaves.  A class that is made again on the other side has to be entered there again: without
that ``jit`` takes a model for one leaf, or looks for it in vain.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

import jax
import numpy
from jax._src import array as array_module
from jax._src import custom_derivatives, tree_util

from gpulease.transfer_next.jax import trees

from . import away
from .base import Aside, Inside, Packing, set_attributes

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

    def entry(self, cls: type) -> trees.Entry | None:
        return trees.entry_of(cls)

    def enter(self, cls: type, entry: trees.Entry) -> None:
        trees.enter(cls, entry)


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


FRAMEWORK = _Jax()
