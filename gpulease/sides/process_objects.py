"""Objects of which each process has one, whose state travels by itself or belongs to the process.

``from os import environ``, ``from matplotlib import rcParams`` and ``ctx = decimal.getcontext()``
bind names to them.  On the other side such a name is bound to the one that is there: a copy would
be set in vain, and would carry what the environment keeps from the other side.
"""

from __future__ import annotations

import decimal
import sys
from collections.abc import Callable
from typing import Any

#: Name of the class -> module and attribute of the one object.
_ATTRIBUTES: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("os", "_Environ"): (("os", "environ"), ("os", "environb")),
    ("matplotlib", "RcParams"): (("matplotlib", "rcParams"),),
    ("jax._src.config", "Config"): (("jax", "config"),),
    # The global generators: scipy's distributions and ``random.shuffle`` hold them.
    ("numpy.random.mtrand", "RandomState"): (("numpy.random.mtrand", "_rand"),),
    ("random", "Random"): (("random", "_inst"),),
}


class _Main:
    """The decimal context of the thread that cells run on: another thread is asked, too."""

    context: decimal.Context | None = None


def see_context() -> None:
    """Remember this thread's context: it is the one that cells use."""
    _Main.context = decimal.getcontext()


def context() -> decimal.Context:
    """Return the context that cells use."""
    return _Main.context or decimal.getcontext()


def reduce(obj: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """Return how the other side's is found; None for what is another one."""
    kind = type(obj)
    if kind is decimal.Context:
        return (context, ()) if obj is context() else None
    for module, name in _ATTRIBUTES.get((kind.__module__, kind.__qualname__), ()):
        if getattr(sys.modules.get(module), name, None) is obj:
            return getattr, (sys.modules[module], name)
    return None
