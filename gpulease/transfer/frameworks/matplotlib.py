"""matplotlib: the callbacks of figures and their parts.

Its own way of being pickled drops them, for most lead to a window.  With them goes what follows a
norm or an image: a colorbar would keep the range that it had, and what a notebook connected
(``ax.callbacks.connect``, ``fig.canvas.mpl_connect``) would no longer be called.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from matplotlib.cbook import CallbackRegistry

from gpulease.sides import counters

from .base import Aside, Inside, Packing, new

#: What belongs to a window or to the picture under a cell is made anew with the figure.
_OF_WINDOWS = ("matplotlib.backend", "matplotlib_inline.", "ipympl.")


class _Matplotlib(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return kind is CallbackRegistry

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        called = [getattr(each, "__self__", each) for _, _, each in _called(obj)]
        return Inside([obj.exception_handler, *called])

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        callbacks: dict[Any, dict[int, Any]] = {signal: {} for signal in obj.callbacks}
        for signal, number, each in _called(obj):
            callbacks[signal][number] = each
        state = vars(obj) | {
            "callbacks": callbacks,
            "_func_cid_map": None,
            # Not by ``next``: to look at a figure would change it.
            "_cid_gen": counters.state_of(obj._cid_gen)[0],
        }
        return new, (type(obj),), state


def _called(registry: Any) -> Iterator[tuple[Any, int, Any]]:
    """Yield what a registry calls: signal, number and function."""
    for signal, proxies in registry.callbacks.items():
        for number, proxy in proxies.items():
            each = proxy()
            if each is not None and not _is_of_a_window(each):
                yield signal, number, each


def _is_of_a_window(called: Any) -> bool:
    owner = called.__self__ if isinstance(called, types.MethodType) else None
    return any(base.__module__.startswith(_OF_WINDOWS) for base in type(owner).__mro__)


FRAMEWORK = _Matplotlib()
