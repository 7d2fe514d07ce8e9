"""What a notebook's values hang on: its variables, and the results that ``Out`` keeps."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Collection, Iterable
from typing import Any

from gpulease.sides.names.variables import is_of_compiled_code, user_names

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
    """Values by name, in the notebook's order; a result's name is ``Out[3]``."""

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
        return found | {f"Out[{number}]": value for number, value in self._results.items()}

    def known(self) -> dict[str, Any]:
        """Return what both sides have by a key: this namespace, and the builtins."""
        builtins = self._namespace.get("__builtins__", __builtins__)
        builtins = builtins if isinstance(builtins, dict) else vars(builtins)
        return {"namespace": self._namespace, "builtins": builtins}

    def held(self) -> list[Any]:
        """Return what the notebook's own dictionaries hold."""
        return [*self._namespace.values(), *self._results.values()]

    def bind(self, values: dict[str, Any]) -> None:
        """Give names their values."""
        for name, value in values.items():
            result = _RESULT.fullmatch(name)
            if result is None:
                self._namespace[name] = value
            else:
                self._results[int(result[1])] = value

    def keep_only(self, names: Collection[str]) -> None:
        """Delete what is none of these."""
        for name in self.values().keys() - names:
            result = _RESULT.fullmatch(name)
            if result is None:
                del self._namespace[name]
            else:
                del self._results[int(result[1])]

    def sort(self, names: Iterable[str]) -> None:
        """Put the variables in this order."""
        here = [name for name in names if name in self._namespace]
        wanted = set(here)
        if [name for name in self._namespace if name in wanted] != here:
            for name in here:
                self._namespace[name] = self._namespace.pop(name)

    def copy(self) -> tuple[dict[str, Any], dict[int, Any]]:
        """Return what ``restore`` takes."""
        return dict(self._namespace), dict(self._results)

    def restore(self, before: tuple[dict[str, Any], dict[int, Any]]) -> None:
        """Put everything back."""
        names, results = before
        self._namespace.clear()
        self._namespace.update(names)
        self._results.clear()
        self._results.update(results)


def _is_typed(name: str, hidden: Collection[str]) -> bool:
    """Say whether a person has given a name like ``__version__``."""
    return name not in hidden and name not in _OF_A_MODULE and not is_of_compiled_code(name)


def meant(names: Iterable[str], known: Iterable[str]) -> set[str]:
    """Return the names with those of the ``known`` results, where a cell may get at these."""
    found = set(names)
    if any(map(_LEADS_TO_RESULTS.fullmatch, found)):
        found |= {name for name in known if _RESULT.fullmatch(name)}
    return found


def is_of(root: str, module: str) -> bool:
    """Say whether a root is what an own module holds."""
    return root == f"m:{module}" or root.startswith(f"m:{module}:")


def plain(roots: frozenset[str]) -> frozenset[str]:
    """Return a component's roots without pins, which only one side has, if others are there."""
    return frozenset(root for root in roots if root[0] != "p") or roots
