"""Progress bars of tqdm: their counts travel, what they write to is each side's own."""

from __future__ import annotations

import io
import sys
import weakref
from typing import Any

from tqdm.std import tqdm
from tqdm.utils import DisableOnWriteError

from . import rebuild, ways
from .refuse import refused_kind

#: Made again on each side: streams, and functions that hold them.
_OWN = frozenset({"fp", "sp", "disp"})
#: How far the bars of ``tqdm.auto`` are in what they go through.
_ASYNCIO = frozenset({"iterable_iterator", "iterable_next"})
_STREAMS = ("stdout", "stderr")


def reduce(pickler: Any, obj: Any) -> Any:
    """Reduce a bar to its counts, and the name of what it writes to."""
    made = pickler.met.others.id_of(obj), type(obj)
    return progress_bar, made, (_state(obj), _stream(obj)), None, None, put_later


def progress_bar(oid: str, kind: Any) -> Any:
    """Return the bar of this side, or an empty one that the commit fills."""
    here = rebuild.here()
    found = here.found(oid)
    if type(found) is not kind:
        found = object.__new__(kind)  # its own way starts a thread and enters it as on the screen
        kind.get_lock()
        found.disable = True  # one that is given up has nothing to close
    here.bind(oid, found)
    return found


def put_later(obj: Any, content: tuple[dict[str, Any], Any]) -> None:
    """Fill a bar at the commit: it is the one that the page shows."""

    def put(undo: Any) -> None:
        before = dict(vars(obj))

        def put_back() -> None:
            vars(obj).clear()
            vars(obj).update(before)

        undo.add(put_back)
        _fill(obj, *content)

    rebuild.here().later.append(put)


def _state(obj: Any) -> dict[str, Any]:
    state = {name: value for name, value in vars(obj).items() if name not in _OWN}
    over = state.get("iterable")
    # What a finished bar went through cannot be gone through again where that is used up.
    if obj.disable:
        if hasattr(type(over), "__next__") or refused_kind(over) is not None:
            state["iterable"] = None
        state = {name: value for name, value in state.items() if name not in _ASYNCIO}
    return state


def _stream(obj: Any) -> str | io.IOBase | None:
    """Return the name of the standard stream that a bar writes to, or the file itself."""
    wrapped = getattr(obj, "fp", None)
    stream = getattr(wrapped, "_wrapped", wrapped)
    if obj.disable or stream is None:
        return None
    return next((name for name in _STREAMS if getattr(sys, name) is stream), stream)


def _fill(obj: Any, state: dict[str, Any], stream: Any) -> None:
    space = vars(obj)
    for name in space.keys() - state.keys() - _OWN:
        del space[name]
    space.update(state)
    if stream is not None and "fp" not in space:
        file = getattr(sys, stream) if isinstance(stream, str) else stream
        obj.fp = DisableOnWriteError(file, tqdm_instance=obj)
    container = space.get("container")
    if container is not None:
        container.pbar = weakref.proxy(obj)
        obj.disp = obj.display
    elif obj.disable:
        obj.disp = _shows_nothing
    elif "fp" in space and "sp" not in space:
        obj.sp = obj.status_printer(obj.fp)
    if obj.disable:
        type(obj)._instances.discard(obj)
    else:
        type(obj)._instances.add(obj)


def _shows_nothing(*_: Any, **__: Any) -> None:
    """Stand for the display of a bar that is over."""


ways.enter({tqdm: reduce}, shown=(tqdm,))
