"""Widgets: each side has its own object, both speak to the one view that the page shows.

What a person sees is the page's, and stays there when the GPU is returned.  So a widget travels as
its traits, attributes and the callbacks that were registered; it is never opened a second time.
"""

from __future__ import annotations

import weakref
from typing import Any

import comm
import ipywidgets
from ipykernel.kernelbase import Kernel
from traitlets import EventHandler

from . import rebuild, ways

#: The process's own, or made anew: the comm, the log, and what is under way to the page.
_OWN_TRAITS = frozenset({"comm", "log", "keys", "_property_lock", "_states_to_send"})
_OWN_ATTRIBUTES = frozenset({
    "_trait_values", "_trait_notifiers", "_trait_validators", "_cross_validation_lock",
    "_model_id", "_holding_sync", "_repr_mimebundle_", "notify_change",
})  # fmt: skip
_TARGET = "jupyter.widget"
#: Every open widget by model id; ipywidgets 7 has another table, and its widgets stay blocked.
_open: dict[str, Any] | None = getattr(ipywidgets.widgets.widget, "_instances", None)


#: Traits, attributes, callbacks by trait and type, and the model's id.
_Content = tuple[dict[str, Any], dict[str, Any], list[tuple[Any, Any, list[Any]]], str]


def reduce(pickler: Any, obj: Any) -> Any:
    """Reduce a widget to its model's id, and what is put into the one of the other side."""
    made = pickler.met.others.id_of(obj), type(obj), _model_id(obj)
    return widget, made, _content(obj), None, None, put_later


def widget(oid: str, kind: Any, model_id: str) -> Any:
    """Return the widget of this side, or an empty one that the commit fills."""
    here = rebuild.here()
    found = here.found(oid)
    if found is None and _open is not None:
        found = _open.get(model_id)
    if type(found) is not kind:
        found = kind.__new__(kind)
    here.bind(oid, found)
    return found


def put_later(obj: Any, content: _Content) -> None:
    """Fill a widget at the commit: it is the one that the page shows."""

    def put(undo: Any) -> None:
        before = _content(obj)
        undo.add(lambda: _put(obj, before))
        _put(obj, content)

    rebuild.here().later.append(put)


def _content(obj: Any) -> _Content:
    return _traits(obj), _attributes(obj), _callbacks(obj), _model_id(obj)


def _put(obj: Any, content: _Content) -> None:
    traits, attributes, callbacks, model_id = content
    _fill(obj, traits, attributes)
    _set_callbacks(obj, callbacks)
    _connect(obj, model_id)


class _Bytes:
    """Memory that a trait shows (a picture's, say), pickled as its bytes."""

    def __init__(self, shown: memoryview) -> None:
        self.shown = shown

    def __reduce__(self) -> tuple[Any, ...]:
        return memoryview, (self.shown.tobytes(),)


def _model_id(obj: Any) -> str:
    found = obj._trait_values.get("comm")
    return "" if found is None else str(found.comm_id)


def _traits(obj: Any) -> dict[str, Any]:
    values = obj._trait_values
    return {
        name: _Bytes(value) if type(value := values[name]) is memoryview else value
        for name in sorted(values.keys() - _OWN_TRAITS)
    }


def _attributes(obj: Any) -> dict[str, Any]:
    space = vars(obj)
    names = sorted(space.keys() - _OWN_ATTRIBUTES)
    # A bar of tqdm is told to its box by a weak reference, which its own room makes again.
    return {name: space[name] for name in names if type(space[name]) not in weakref.ProxyTypes}


def _callbacks(obj: Any) -> list[tuple[Any, Any, list[Any]]]:
    """Return trait, type and callbacks of what was registered beside the class's own."""
    rows = [
        (name, kind, [each for each in handlers if not isinstance(each, EventHandler)])
        for name, kinds in obj._trait_notifiers.items()
        for kind, handlers in kinds.items()
    ]
    return sorted((row for row in rows if row[2]), key=lambda row: (str(row[0]), str(row[1])))


def _fill(obj: Any, traits: dict[str, Any], attributes: dict[str, Any]) -> None:
    values = obj._trait_values
    for name in values.keys() - _OWN_TRAITS - traits.keys():
        del values[name]
    values.update(traits)
    space = vars(obj)
    for name in _attributes(obj).keys() - attributes.keys():
        del space[name]
    space.update(attributes)


def _set_callbacks(obj: Any, callbacks: list[tuple[Any, Any, list[Any]]]) -> None:
    notifiers = obj._trait_notifiers
    for kinds in notifiers.values():
        for kind, handlers in kinds.items():
            kinds[kind] = [each for each in handlers if isinstance(each, EventHandler)]
    for name, kind, handlers in callbacks:
        notifiers.setdefault(name, {}).setdefault(kind, []).extend(handlers)


def _connect(obj: Any, model_id: str) -> None:
    """Give the widget the comm of the model that the page has, or take a closed one's away."""
    assert _open is not None
    if _model_id(obj) == model_id:
        return
    _open.pop(_model_id(obj), None)
    if not model_id:
        obj._trait_values["comm"] = None
        return
    manager: Any = comm.get_comm_manager()
    found: Any = manager.get_comm(model_id) if model_id in manager.comms else None
    if found is None:
        found = comm.create_comm(comm_id=model_id, target_name=_TARGET, primary=False)
        manager.register_comm(found)
    if getattr(found, "kernel", 0) is None and Kernel.initialized():
        found.kernel = Kernel.instance()  # else the widget takes it for closed and tells nothing
    obj._trait_values["comm"] = found
    obj._model_id = model_id
    found.on_msg(obj._handle_msg)
    _open[model_id] = obj


if _open is not None:
    ways.enter({ipywidgets.Widget: reduce}, shown=(ipywidgets.Widget,))
