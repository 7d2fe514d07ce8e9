"""The figures that pyplot holds, by their numbers: roots, as variables are.

``plt.plot`` in one cell and ``plt.title`` in the next one are about the same figure, whichever side
each cell runs on.  Where IPython shows figures under their cell and closes them there are none.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from gpulease.sides.looks import ask, is_a

#: How a root of these is named; what a person calls figure 1 is ``plt.figure(1)``.
FIGURE = re.compile(r"Figure\[(\d+)\]")


def figures() -> dict[str, Any]:
    """Return the figures by name, the current one last."""
    return {f"Figure[{number}]": found.canvas.figure for number, found in list(managers().items())}


def _number(name: str) -> int:
    return int(name.removeprefix("Figure[").removesuffix("]"))


def managers() -> dict[int, Any]:
    """Return what pyplot has for each figure's number (``Gcf.figs``, which matplotlib documents).

    Without pyplot, or where it is too old to say what shows a figure (before 3.9), it is empty and
    thrown away.
    """
    if "matplotlib.pyplot" not in sys.modules or _registry() is None:
        return {}
    found: dict[int, Any] = sys.modules["matplotlib._pylab_helpers"].Gcf.figs
    return found


def _registry() -> Any:
    return getattr(sys.modules.get("matplotlib.backends"), "backend_registry", None)


def may_draw(kinds: Collection[type], of_kinds: Callable[[Collection[type]], list[Any]]) -> bool:
    """Say whether something of these kinds may know how to draw on the current figure.

    What the notebook's own functions read by name is looked for elsewhere.
    """
    named = {kind for kind in kinds if issubclass(kind, _NAMED)}
    asked = [*(kind for kind in kinds if kind not in named), *of_kinds(named)]
    return any(_package(each) not in _NEVER_DRAW for each in asked)


#: What belongs to a package by its own name, and not by its class's.
_NAMED = (types.FunctionType, types.ModuleType, type)


def _package(obj: Any) -> str:
    of = ask(obj, "__name__") if is_a(obj, types.ModuleType) else ask(obj, "__module__")
    return str(of).partition(".")[0]


_NEVER_DRAW = frozenset({*sys.stdlib_module_names, "__main__", "numpy", "torch"})


def adopt(name: str, figure: Any) -> None:
    """Have pyplot hold a figure under its number, in place of the one that it holds there."""
    number, held = _number(name), managers()
    if number in held and held[number].canvas.figure is figure:
        return
    import matplotlib.pyplot  # the side that made the figure has it, this one may not
    from matplotlib import _pylab_helpers as helpers

    if _registry() is None:
        return
    backend = _registry().load_backend_module(matplotlib.get_backend())
    close(name)
    # As a figure's own pickle does, but for the number and but for IPython's backend, whose way for
    # figures that exist would show this one again.
    hold: Any = getattr(helpers.Gcf, "_set_new_active_manager", helpers.Gcf.set_active)
    hold(backend.FigureCanvas.new_manager(figure, number))


def close(name: str) -> None:
    """Have pyplot let go of a figure, which stays what it is."""
    manager = managers().pop(_number(name), None)
    if manager is not None:
        with suppress(Exception):  # a window that is gone already
            manager.destroy()


def sort(names: Collection[str]) -> None:
    """Make the last of these figures pyplot's current one."""
    held = managers()
    wanted = [_number(name) for name in names if FIGURE.fullmatch(name)]
    for number in [each for each in wanted if each in held]:
        held[number] = held.pop(number)


def reduce_figure(figure: Any) -> Any:
    """Reduce a figure without its wish to be held by pyplot again, under a new number."""
    made, args, state, *rest = figure.__reduce_ex__(5)
    return made, args, {k: v for k, v in state.items() if k != "_restore_to_pylab"}, *rest
