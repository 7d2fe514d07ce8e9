"""Keras 3: layers, models, optimisers and metrics by their attributes, on any backend.

Their own way of being pickled writes a file and makes another model of it: without the optimiser's
state where it is not compiled, without a class of the notebook's, without the identity of a layer
that has a name of its own.  Their variables are the backend's, and travel as those do.

What Keras keeps by ``id`` (which values a tracker has, where an optimiser finds a variable, which
nodes are a model's) is found anew on the other side, and what it compiled is compiled anew.
"""

from __future__ import annotations

from typing import Any

from keras.src.layers.layer import Layer
from keras.src.ops.function import Function, make_node_key
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.saving.keras_saveable import KerasSaveable
from keras.src.utils import tracking
from keras.src.utils.tracking import Tracker

from .base import Aside, Inside, Packing

_CONTAINERS: dict[type, type] = {
    getattr(tracking, name): base
    for name, base in (("TrackedList", list), ("TrackedDict", dict), ("TrackedSet", set))
}
#: Made with the layer: wrappers of its class's methods, which hold it.
_WRAPPERS = ("build", "quantize")
#: Compiled when they are next asked for.
_COMPILED = ("train_function", "test_function", "predict_function")


class _Keras(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return kind in _CONTAINERS or issubclass(kind, (KerasSaveable, Tracker))

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside([*_items(obj), *_attributes(obj).values()])

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        state = (_attributes(obj), _items(obj), _known_by_id(obj))
        return empty, (type(obj),), state, None, None, fill


def _items(obj: Any) -> list[Any]:
    if isinstance(obj, dict):
        return list(obj.items())
    return list(obj) if type(obj) in _CONTAINERS else []


def _attributes(obj: Any) -> dict[str, Any]:
    """Return what an object has, less what is found or made anew."""
    out = dict(vars(obj))
    if isinstance(obj, Layer):
        for name in _WRAPPERS:
            out.pop(name, None)
        out["_loss_ids"] = set()
    for name in _COMPILED:
        if name in out:
            out[name] = None
    for name in ("stored_ids", "_nodes", "_trainable_variables_indices", "_nnx_op_mapping"):
        out.pop(name, None)
    return out


def _known_by_id(obj: Any) -> Any:
    """Return the objects that ``obj`` knows by their ``id``, in lists of our own.

    Those are complete when ``fill`` gets them, in a circle of references too.
    """
    if isinstance(obj, Tracker):
        return {name: list(store) for name, (_, store) in obj.config.items()}
    if isinstance(obj, BaseOptimizer):
        return list(getattr(obj, "_trainable_variables", ()))
    if isinstance(obj, Layer):
        losses = list(vars(obj).get("_losses", ()))
        return losses, _nodes_of(obj)
    return _nodes_of(obj)


def _nodes_of(obj: Any) -> list[tuple[Any, int]] | None:
    by_depth = vars(obj).get("_nodes_by_depth") if isinstance(obj, Function) else None
    if by_depth is None:
        return None
    nodes = [node for depth in sorted(by_depth) for node in by_depth[depth]]
    return [(node.operation, node.operation._inbound_nodes.index(node)) for node in nodes]


def empty(kind: type) -> Any:
    """Return an object without attributes; of a layer the wrappers of its methods."""
    if kind in _CONTAINERS:
        base: Any = _CONTAINERS[kind]
        return base.__new__(kind)
    if not issubclass(kind, Layer):
        return object.__new__(kind)
    made = Layer.__new__(kind)
    wrappers = {name: vars(made)[name] for name in _WRAPPERS if name in vars(made)}
    vars(made).clear()
    vars(made).update(wrappers)
    return made


def fill(obj: Any, state: tuple[dict[str, Any], list[Any], Any]) -> None:
    """Give an object its attributes and items, and find what it knows by ``id``."""
    attributes, items, known = state
    vars(obj).update(attributes)
    if isinstance(obj, list):
        list.extend(obj, items)
    elif isinstance(obj, dict):
        dict.update(obj, items)
    elif isinstance(obj, set):
        set.update(obj, items)
    elif isinstance(obj, Tracker):
        obj.stored_ids = {name: set(map(id, store)) for name, store in known.items()}
    elif isinstance(obj, BaseOptimizer):
        indices = {id(variable): index for index, variable in enumerate(known)}
        vars(obj)["_trainable_variables_indices"] = indices
    else:
        losses, nodes = known if isinstance(obj, Layer) else ((), known)
        if losses:
            vars(obj)["_loss_ids"] = set(map(id, losses))
        if nodes is not None:
            vars(obj)["_nodes"] = {make_node_key(*each) for each in nodes}


FRAMEWORK = _Keras()
