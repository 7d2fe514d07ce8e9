"""What values hang on: variables, the results that ``Out`` keeps, the figures of pyplot."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Collection, Iterable
from typing import Any

from gpulease.sides.names.variables import is_of_compiled_code, user_names

from . import pyplot

_RESULT = re.compile(r"Out\[(\d+)\]")
#: What a cell may write to get at any result.
_LEADS_TO_RESULTS = re.compile(r"Out|_oh|_{1,3}|_\d+")

_DUNDER = re.compile(r"__.*__")
#: What Python and IPython put into a module; other names like these are typed by a person.
_OF_A_MODULE = frozenset(vars(types.ModuleType(""))) | {
    "__builtins__", "__builtin__", "__file__", "__cached__", "__session__",
}  # fmt: skip

#: Names that are not the person's, or what gives them now.
Hidden = Collection[str] | Callable[[], Collection[str]]


class Roots:
    """Values by name, in the notebook's order; a result is ``Out[3]``, a figure ``Figure[1]``."""

    def __init__(self, namespace: dict[str, Any], hidden: Hidden,
                 results: dict[int, Any]) -> None:  # fmt: skip
        self._namespace = namespace
        self._hidden = hidden
        self._results = results

    def values(self) -> dict[str, Any]:
        """Return all values by name."""
        hidden = self._hidden() if callable(self._hidden) else self._hidden
        users = set(user_names(self._namespace, hidden))
        found = {
            name: value
            for name, value in list(self._namespace.items())
            if name in users or (_DUNDER.fullmatch(name) and _is_typed(name, hidden))
        }
        found |= {f"Out[{number}]": value for number, value in self._results.items()}
        return found | pyplot.figures()

    def known(self) -> dict[str, Any]:
        """Return what both sides have by a key: this namespace, and the builtins."""
        builtins = self._namespace.get("__builtins__", __builtins__)
        builtins = builtins if isinstance(builtins, dict) else vars(builtins)
        return {"namespace": self._namespace, "builtins": builtins}

    def held(self) -> list[Any]:
        """Return what the notebook's own dictionaries hold."""
        return [*self._namespace.values(), *self._results.values(), *pyplot.figures().values()]

    def bind(self, values: dict[str, Any]) -> None:
        """Give names their values."""
        for name, value in values.items():
            if is_variable(name):
                self._namespace[name] = value
            elif result := _RESULT.fullmatch(name):
                self._results[int(result[1])] = value
            else:
                pyplot.adopt(name, value)

    def keep_only(self, names: Collection[str]) -> None:
        """Delete what is none of these."""
        for name in self.values().keys() - names:
            if is_variable(name):
                del self._namespace[name]
            elif result := _RESULT.fullmatch(name):
                del self._results[int(result[1])]
            else:
                pyplot.close(name)

    def sort(self, names: Iterable[str]) -> None:
        """Put the variables in this order, and the figures."""
        pyplot.sort(list(names))
        here = [name for name in names if name in self._namespace]
        wanted = set(here)
        if [name for name in self._namespace if name in wanted] != here:
            for name in here:
                self._namespace[name] = self._namespace.pop(name)

    def copy(self) -> list[dict[Any, Any]]:
        """Return what ``restore`` takes."""
        return [dict(each) for each in self._tables()]

    def restore(self, before: list[dict[Any, Any]]) -> None:
        """Put everything back."""
        for table, content in zip(self._tables(), before, strict=False):
            table.clear()
            table.update(content)

    def _tables(self) -> list[dict[Any, Any]]:
        return [self._namespace, self._results, pyplot.managers()]


def _is_typed(name: str, hidden: Collection[str]) -> bool:
    """Say whether a person has given a name like ``__version__``."""
    return name not in hidden and name not in _OF_A_MODULE and not is_of_compiled_code(name)


def is_variable(name: str) -> bool:
    """Say whether a root is a variable: no result and no figure.

    Its name may be one that no cell can write, as pydantic gives ``Box[Item]`` to a class.
    """
    return _RESULT.fullmatch(name) is None and pyplot.FIGURE.fullmatch(name) is None


def meant(names: Iterable[str], known: Iterable[str]) -> set[str]:
    """Return the names with those of the ``known`` results, where a cell may get at these.

    Any code may get at pyplot's figures.
    """
    known = list(known)
    found = {*names, *filter(pyplot.FIGURE.fullmatch, known)}
    if any(map(_LEADS_TO_RESULTS.fullmatch, found)):
        found |= {name for name in known if _RESULT.fullmatch(name)}
    return found


def is_of(root: str, module: str) -> bool:
    """Say whether a root is what an own module holds."""
    return root == f"m:{module}" or root.startswith(f"m:{module}:")


def plain(roots: frozenset[str]) -> frozenset[str]:
    """Return a component's roots without pins, which only one side has, if others are there."""
    return frozenset(root for root in roots if root[0] != "p") or roots
