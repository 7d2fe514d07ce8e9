"""numba: what it compiles travels as the function and its options, and is compiled where it runs.

An instance of a dispatcher reaches compiled code, caches and weak references of its own process.
Also ``numba.cuda``'s kernels: they are dispatchers, and make no device before they are called.
Typed dictionaries and lists travel by their items.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

from numba.core.dispatcher import Dispatcher

from .base import Aside, Inside, Packing, Stage, staged

try:
    from numba.np.ufunc.dufunc import DUFunc
    from numba.np.ufunc.gufunc import GUFunc
    from numba.np.ufunc.ufuncbuilder import UFuncDispatcher
    from numba.typed import Dict, List
except ImportError:  # another version has them elsewhere: they go their own way
    _UFUNCS: tuple[Any, ...] = ()
    _DICTS: tuple[Any, ...] = ()
    _TYPED: tuple[Any, ...] = ()
    _KINDS: tuple[Any, ...] = (Dispatcher,)
else:
    _UFUNCS, _DICTS, _TYPED = (DUFunc,), (Dict,), (Dict, List)
    _KINDS = (Dispatcher, DUFunc, GUFunc, UFuncDispatcher, *_TYPED)

#: What an object's state calls the function or the dispatcher that it is made of.
_MADE_OF = ("py_func", "pyfunc", "dispatcher")


class _Numba(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return issubclass(kind, _KINDS)

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        if isinstance(obj, _TYPED):
            return Inside(_items(obj))
        states = _states(obj)
        return Inside([states[name] for name in _MADE_OF if name in states])

    def reduce(self, obj: Any, packing: Packing) -> Any:
        if isinstance(obj, _TYPED):
            return typed, (packing.lasting_oid(obj), type(obj), _types_of(obj))
        return compiled, (packing.lasting_oid(obj), type(obj), _states(obj))

    def content(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return _items(obj) if isinstance(obj, _TYPED) else None

    def apply(self, pairs: list[tuple[Any, Any]], stage: Stage) -> None:  # noqa: ARG002
        for obj, items in pairs:
            _fill(obj, items)


class _Later:
    """Compiles a function for the signatures that were asked for, when it is first used.

    What it calls is a global name, and the notebook's names are bound after everything is loaded.
    """

    def __init__(self, made: Any, asked: dict[str, Any]) -> None:
        self.asked = asked
        self._made = weakref.proxy(made)
        calls, others = _UFUNCS_USES if isinstance(made, _UFUNCS) else _DISPATCHERS_USES
        self._uses = (*calls, *others, _LATER)
        vars(made).update(dict.fromkeys(calls, self.compile))
        vars(made).update({name: partial(self._first, name) for name in others})
        vars(made)[_LATER] = self

    def compile(self, *_: Any, **__: Any) -> Any:
        """Compile it; numba then calls what is returned, or looks again for what is compiled."""
        made: Any = self._made
        for name in self._uses:
            vars(made).pop(name, None)
        if isinstance(made, _UFUNCS):
            for sig in self.asked["siglist"]:
                made.add(sig)
            made._frozen = self.asked["frozen"]
        else:
            for sig in self.asked["sigs"]:
                made.compile(sig)
            made._can_compile = self.asked["can_compile"]
        return made

    def _first(self, name: str, *given: Any, **named: Any) -> Any:
        return getattr(self.compile(), name)(*given, **named)


#: Where an object keeps that it is still to be compiled.
_LATER = "_gpulease_later"
#: What numba asks one for when it is called and there is nothing compiled for what it is given; and
#: what needs the compiled code beside.
_DISPATCHERS_USES = (("_compile_for_args",), ("get_call_template",))
_UFUNCS_USES = (
    ("_compile_for_args", "_compile_for_argtys"),
    ("reduce", "accumulate", "reduceat", "outer", "at"),
)
#: The state that says what to compile, as one has it that nothing was asked of.
_NOTHING_ASKED = {"sigs": [], "siglist": [], "can_compile": True, "frozen": False}


def _states(obj: Any) -> dict[str, Any]:
    states: dict[str, Any] = obj._reduce_states()
    later = vars(obj).get(_LATER)
    return states if later is None else states | later.asked


@staged
def compiled(stage: Stage, oid: str, kind: Any, states: dict[str, Any]) -> Any:
    """Return this side's, or one that is compiled when it is called."""
    found = stage.live(oid)
    if type(found) is kind:
        return found
    if not (states.get("sigs") or states.get("siglist")):
        return stage.make(oid, kind._rebuild(**states))
    asked = {name: states[name] for name in _NOTHING_ASKED.keys() & states}
    made = kind._rebuild(**(states | {name: _NOTHING_ASKED[name] for name in asked}))
    _Later(made, asked)
    return stage.make(oid, made)


@staged
def typed(stage: Stage, oid: str, kind: Any, types: tuple[Any, ...]) -> Any:
    """Return this side's typed dictionary or list, or a new one; its items come at the commit."""
    found = stage.live(oid)
    if type(found) is kind and _types_of(found) in ((), types):
        return found
    empty = kind.empty if issubclass(kind, _DICTS) else kind.empty_list
    return stage.make(oid, empty(*types) if types else kind())


def _types_of(obj: Any) -> tuple[Any, ...]:
    """Return what it may hold; nothing as long as it has no type yet."""
    if not obj._typed:
        return ()
    if isinstance(obj, _DICTS):
        return (obj._dict_type.key_type, obj._dict_type.value_type)
    return (obj._list_type.item_type,)


def _items(obj: Any) -> list[Any]:
    if not obj._typed:
        return []
    return list(obj.items()) if isinstance(obj, _DICTS) else list(obj)


def _fill(obj: Any, items: list[Any]) -> None:
    if obj._typed and len(obj):
        obj.clear()
    for item in items:
        if isinstance(obj, _DICTS):
            obj[item[0]] = item[1]
        else:
            obj.append(item)


FRAMEWORK = _Numba()
