"""What IPython keeps of the results and errors that it showed, which counts as held by nobody."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Collection
from traceback import walk_tb
from typing import Any

from gpulease.sides.last_error import current

#: More containers of results are not looked into.
LIMIT = 20_000
#: A result such as ``model, losses`` is held by the tuple that was shown, and by nobody else.
_CONTAINERS = frozenset({tuple, list, dict, set, frozenset})


def own_results(ns: dict[str, Any], wanted: Collection[int], seen: Collection[int]) -> list[int]:
    """Return those of the ``wanted`` ids that results refer to, once for each time.

    References from within the objects of ``seen`` (by id) were counted already.
    """
    found: list[int] = []
    frontier = _kept(ns)
    entered = {*seen, id(ns.get("_oh"))}  # whose values are among them
    most = len(entered) + LIMIT
    while frontier and len(entered) < most:
        found += [id(o) for o in frontier if id(o) in wanted]
        fresh = {id(o): o for o in frontier if type(o) in _CONTAINERS and id(o) not in entered}
        entered.update(fresh)
        frontier = gc.get_referents(*fresh.values())
    return found


def _kept(ns: dict[str, Any]) -> list[Any]:
    """Return the results in ``Out``, ``_`` and their kin, in each place that has them."""
    results = ns.get("_oh")
    # The plain dict's method: a subclass fetches a result that is away when it is asked for it.
    kept = list(dict.values(results)) if isinstance(results, dict) else []
    kept += [value for name, value in list(ns.items()) if name.startswith("_")]
    shell = getattr(ns.get("get_ipython"), "__self__", None)
    # IPython has ``_`` and its kin in a second namespace, and three of them at its display hook.
    hidden = getattr(shell, "user_ns_hidden", {})
    kept += [value for name, value in list(hidden.items()) if name.startswith("_")]
    hook = vars(getattr(shell, "displayhook", None) or object)
    kept += [hook[name] for name in ("_", "__", "___") if name in hook]
    # So has what a cell came to, of which IPython remembers the last one.
    ends = {getattr(shell, "last_execution_result", None), hook.get("exec_result")}
    kept += [each.result for each in ends if each is not None]
    return kept + _of_errors(ns)


def _of_errors(ns: dict[str, Any]) -> list[Any]:
    """Return what the last error is, and what the frames of it and of errors with a name hold.

    Their code has ended: what it held nobody uses any more.
    """
    last = current()
    kept = [last] if last is not None else []
    traces = {id(t): t for each in errors_from([*kept, *ns.values()]) if (t := each.__traceback__)}
    if isinstance(trace := vars(sys).get("last_traceback"), types.TracebackType):
        traces[id(trace)] = trace
    frames: dict[int, types.FrameType] = {}
    for trace in traces.values():
        frames |= {id(frame): frame for frame, _ in walk_tb(trace)}
    for frame in frames.values():
        shared = {id(frame.f_globals), id(frame.f_builtins), id(ns)}
        kept += [each for each in gc.get_referents(frame) if id(each) not in shared]
    return kept


def errors_from(values: Collection[Any]) -> list[BaseException]:
    """Return the exceptions among these values, and those that they came from."""
    found: dict[int, BaseException] = {}
    # By type: an object may answer for its class, and a proxy of what is gone raises.
    left = [value for value in values if issubclass(type(value), BaseException)]
    while left:
        error = left.pop()
        if id(error) not in found:
            found[id(error)] = error
            left += [e for e in (error.__cause__, error.__context__) if e is not None]
    return list(found.values())
