"""numba: what it compiles travels as the function and its options, and is compiled where it runs.

An instance of a dispatcher reaches compiled code, caches and weak references of its own process.
Also ``numba.cuda``'s kernels: they are dispatchers, and make no device before they are called.
"""

from __future__ import annotations

import weakref
from typing import Any

from numba.core.dispatcher import Dispatcher

from .base import Aside, Inside, Packing, Stage, staged

try:
    from numba.np.ufunc.dufunc import DUFunc
    from numba.np.ufunc.gufunc import GUFunc
except ImportError:  # another version has them elsewhere: they go their own way
    _KINDS: tuple[Any, ...] = (Dispatcher,)
else:
    _KINDS = (Dispatcher, DUFunc, GUFunc)


class _Numba(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return issubclass(kind, _KINDS)

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        states = _states(obj)
        return Inside([states[name] for name in ("py_func", "dispatcher") if name in states])

    def reduce(self, obj: Any, packing: Packing) -> Any:
        return compiled, (packing.lasting_oid(obj), type(obj), _states(obj))


class _Later:
    """Compiles a function for the signatures that were asked for, when it is first used.

    What it calls is a global name, and the notebook's names are bound after everything is loaded.
    """

    def __init__(self, made: Any, sigs: list[Any], can_compile: bool) -> None:
        self._made = weakref.proxy(made)
        self.states: dict[str, Any] = {"sigs": sigs, "can_compile": can_compile}

    def compile(self) -> Any:
        made: Any = self._made
        space = vars(made)
        for name in _FIRST_USES:
            space.pop(name, None)
        for sig in self.states["sigs"]:
            made.compile(sig)
        made._can_compile = self.states["can_compile"]
        return made

    def _compile_for_args(self, *_: Any, **__: Any) -> Any:
        return self.compile()  # which numba calls

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return self.compile().get_call_template(args, kws)


#: What numba asks a dispatcher for when it is called, from Python and from compiled code.
_FIRST_USES = ("_compile_for_args", "get_call_template")


def _states(obj: Any) -> dict[str, Any]:
    states: dict[str, Any] = obj._reduce_states()
    later = vars(obj).get(_FIRST_USES[0]) if isinstance(obj, Dispatcher) else None
    return states | later.__self__.states if later is not None else states


@staged
def compiled(stage: Stage, oid: str, kind: Any, states: dict[str, Any]) -> Any:
    """Return this side's, or one that is compiled when it is called."""
    found = stage.live(oid)
    if type(found) is kind:
        return found
    sigs = states.get("sigs")
    made = kind._rebuild(**(states | {"sigs": [], "can_compile": True} if sigs else states))
    if sigs:
        later = _Later(made, sigs, states["can_compile"])
        vars(made).update({name: getattr(later, name) for name in _FIRST_USES})
    return stage.make(oid, made)


FRAMEWORK = _Numba()
