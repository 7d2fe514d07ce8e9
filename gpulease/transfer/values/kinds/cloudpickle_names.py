"""The parts of cloudpickle that say which classes, functions and variables travel by name.

Owns nothing: it names in one place what is used beyond cloudpickle's public interface, so that a
new version of it is checked here.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from cloudpickle import cloudpickle as _cp


def by_reference(obj: Any) -> bool:
    """Say whether a class, function or module is found again by a name."""
    return bool(_cp._should_pickle_by_reference(obj)) or bool(alias(obj))  # noqa: SLF001


def alias(kind: Any) -> tuple[types.ModuleType, str] | None:
    """Return where an installed module has a class, where the class's own words lead nowhere.

    ``jax.Array`` is by its own account ``jaxlib._jax.Array`` of the module ``jax``, ``np.recarray``
    of the module ``numpy.rec``, which nobody may have imported.
    """
    own = getattr(kind, "__module__", None)
    if not isinstance(kind, type) or not isinstance(own, str) or own == "__main__":
        return None
    where, name = own, kind.__qualname__.rpartition(".")[2]
    while where and where not in sys.modules:
        where = where.rpartition(".")[0]
    if not where or (where == own and "." not in kind.__qualname__):
        return None
    module = sys.modules[where]
    return (module, name) if getattr(module, name, None) is kind else None


def parts_of_variable(variable: Any) -> tuple[Any, ...]:
    """Return what a type variable is made from, and by which it is known again."""
    return tuple(_cp._decompose_typevar(variable))  # noqa: SLF001


def variable_of(parts: tuple[Any, ...]) -> Any:
    """Return the type variable of these parts: the one that is here, or a new one."""
    return _cp._make_typevar(*parts)  # noqa: SLF001


def is_named(kind: Any) -> bool:
    """Say whether a class is found again by its name."""
    return bool(by_reference(kind)) or kind in _cp._BUILTIN_TYPE_NAMES  # noqa: SLF001
