"""Names that Python and libraries do not promise, where there is no other way.

Each is looked for, and what needs one that is gone is refused by name.  The tests beside name the
versions that have them.
"""

from __future__ import annotations

import abc
import copyreg
import sys
from typing import Any

from .anatomy import content_of
from .refuse import RefusedError

#: Names and values of an enumeration's members, beside what ``__members__`` shows.
ENUM_MAPS = ("_member_map_", "_value2member_map_")


def registered(cls: Any) -> list[Any]:
    """Return the classes that count as subclasses of an abstract one."""
    get_dump: Any = getattr(abc, "_get_dump", None)
    if get_dump is None:
        raise RefusedError("an abstract class, of which this Python does not say who registered")
    return [found for each in get_dump(cls)[0] if (found := each()) is not None]


def by_value(cls: Any) -> dict[Any, Any]:
    """Return which member an enumeration finds for which value."""
    if not all(name in vars(cls) for name in ENUM_MAPS):
        raise RefusedError("an enumeration of a Python that keeps its members in another way")
    found: dict[Any, Any] = vars(cls)["_value2member_map_"]
    return found


def set_members(cls: Any, members: dict[str, Any]) -> None:
    """Give a new enumeration its members; ``by_value`` is empty then."""
    type.__setattr__(cls, "_member_map_", members)
    type.__setattr__(cls, "_value2member_map_", {})


def reduce_callbacks(registry: Any) -> Any:
    """Reduce matplotlib's register of callbacks, with those that its own pickle leaves out.

    What belongs to a window or a picture stays out: each side makes its own.
    """
    state = registry.__getstate__()
    if "_cid_gen" not in state or "_func_cid_map" not in state:
        raise RefusedError("callbacks of a version of matplotlib that keeps them in another way")
    state["callbacks"] = {
        signal: {cid: called for cid, proxy in held.items() if _travels(called := proxy())}
        for signal, held in registry.callbacks.items()
    }
    # Each look takes a number; the next one has to follow those that are in use, no more.
    state["_cid_gen"] = 1 + max(
        (cid for held in registry.callbacks.values() for cid in held), default=-1
    )
    return copyreg.__newobj__, (type(registry),), state  # type: ignore[attr-defined]


def _travels(called: Any) -> bool:
    """Say whether a callback is there, and no window's and no animation's.

    A window's are its methods, functions that are made within them, and what calls such a one.
    """
    owner = getattr(called, "__self__", None)
    stays = (
        getattr(sys.modules.get(module), name, None)
        for module, names in _STAY.items()
        for name in names
    )
    if called is None or isinstance(owner, tuple(each for each in stays if each)):
        return False
    inner = map(content_of, getattr(called, "__closure__", None) or ())
    return not any(getattr(each, "__module__", None) in _WINDOWS for each in (called, *inner))


_STAY = {
    "matplotlib.backend_bases": ("FigureCanvasBase", "FigureManagerBase", "NavigationToolbar2"),
    "matplotlib.animation": ("Animation",),
}
_WINDOWS = ("matplotlib.backend_bases", "matplotlib._pylab_helpers")
