"""JAX's registers of classes: how an instance is taken apart into leaves.

JAX, flax and equinox keep that beside the class, in tables of their own.  A class that is made
again on the other side has to be entered there again: without that ``jit`` takes a model for one
leaf, or looks for it in vain.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
from typing import Any

from jax._src import tree_util

from gpulease.transfer_next import ways

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


REGISTER = ways.Register(entry_of, enter)


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
