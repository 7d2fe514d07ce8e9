"""The parts of cloudpickle that say which classes, functions and variables travel by name.

They go beyond cloudpickle's public interface, and are named in one place so that a new version of
it is checked here.
"""

from __future__ import annotations

import sys
import types
import typing
from typing import Any

from cloudpickle import cloudpickle as _cp

#: What a notebook makes by these has a name and an identity, and Python pickles it by name alone:
#: the attributes that each was given, those by position, and those by keyword.
_GIVEN: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {
    typing.ParamSpec: (("__name__",), ("__bound__", "__covariant__", "__contravariant__")),
    typing.TypeVarTuple: (("__name__",), ()),
}
VARIABLES = frozenset({typing.TypeVar, *_GIVEN})


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
    """Return what a variable of typing's is made from, and what it is known by."""
    kind = type(variable)
    if kind is typing.TypeVar:
        return (kind.__name__, *_cp._decompose_typevar(variable))  # noqa: SLF001
    places, keywords = _GIVEN[kind]
    given = [getattr(variable, name) for name in places]
    options = {name.strip("_"): getattr(variable, name) for name in keywords}
    return kind.__name__, given, options, _cp._get_or_create_tracker_id(variable)  # noqa: SLF001


def variable_of(parts: tuple[Any, ...]) -> Any:
    """Return the variable of these parts: the one that is here, or a new one."""
    kind, *given = parts
    if kind == "TypeVar":
        return _cp._make_typevar(*given)  # noqa: SLF001
    places, options, tracked = given
    made = getattr(typing, kind)(*places, **options)
    return _cp._lookup_class_or_track(tracked, made)  # noqa: SLF001


def is_named(kind: Any) -> bool:
    """Say whether a class is found again by its name."""
    return bool(by_reference(kind)) or kind in _cp._BUILTIN_TYPE_NAMES  # noqa: SLF001
