"""What an object is by its class: the notebook's or a library's, its attributes or more."""

from __future__ import annotations

import operator
import sys
import types
from typing import Any

from gpulease.sides.libraries import package_of

from . import anatomy, own, ways

_WAYS = (
    "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__",
    "__getnewargs_ex__",
)  # fmt: skip
#: Where a class is by chance, and on the other side perhaps not.
_NO_HOME = sys.stdlib_module_names | {"__main__"}
#: Library classes whose ``__getstate__`` gives copies, leaves out what a cell can read, or changes
#: what is looked at (statsmodels' results).  patsy's cannot be pickled, so statsmodels makes them
#: again, with the names that its caller has.
_FORGETFUL = {
    ("collections", "Counter"),
    ("patsy", "*"),
    ("transformers", "BatchEncoding"),
    *(("statsmodels", name) for name in ("DiscreteResults", "ModelData", "NegativeBinomial")),
    *(
        ("numpy", name)
        for name in ("Chebyshev", "Hermite", "HermiteE", "Laguerre", "Legendre", "Polynomial")
    ),
}


def travels_by_value(obj: Any) -> bool:
    """Say whether a class or function is the notebook's: no module has it under its name."""
    if isinstance(obj, type) and not anatomy.made_by_python(obj):
        return False
    name: str = getattr(obj, "__qualname__", "")
    module = getattr(obj, "__module__", None)
    if module == "__main__" or not isinstance(module, str):
        return True
    try:
        if operator.attrgetter(name)(sys.modules[module]) is not obj:
            return True
        return own.has_state(obj)
    except (KeyError, AttributeError, ValueError):
        return found_elsewhere(obj) is None


def is_loose(module: types.ModuleType) -> bool:
    """Say whether no import finds a module: it was made by a cell, as ``module_from_spec`` does."""
    name = vars(module).get("__name__")
    return type(name) is not str or sys.modules.get(name) is not module


def found_elsewhere(cls: Any) -> tuple[Any, str] | None:
    """Return the package that has a class whose own words lead to no module (``np.recarray``)."""
    module = getattr(cls, "__module__", None)
    if not isinstance(cls, type) or not isinstance(module, str):
        return None
    while module and module not in sys.modules:
        module = module.rpartition(".")[0]
    found = sys.modules.get(module)
    name: str = cls.__name__
    return (found, name) if getattr(found, name, None) is cls else None


def of_rust(cls: type) -> tuple[Any, str] | None:
    """Return where a class is that calls itself a builtin, as those of Rust do (safetensors)."""
    name, every = cls.__name__, sys.modules.copy()  # another thread may import meanwhile
    have = [key for key, each in every.items() if getattr(each, "__dict__", {}).get(name) is cls]
    have = [key for key in have if key.partition(".")[0] not in _NO_HOME]
    return (every[min(have, key=lambda key: (key.count("."), key))], name) if have else None


def takes_raw(cls: type) -> bool:
    """Say whether instances are their attributes and the builtin under their class."""
    if anatomy.builtin_under(cls) is None:
        return False
    if ways.is_raw(cls):
        return True
    if issubclass(cls, BaseException):
        own: Any = cls.__reduce__
        return (
            not anatomy.made_by_python(cls)
            or is_the_persons(cls)
            or (own is BaseException.__reduce__ and not hasattr(cls, "__getnewargs__"))
        )
    if not anatomy.made_by_python(cls):
        return cls is types.SimpleNamespace
    if is_the_persons(cls) or any(map(_is_forgetful, cls.__mro__)):
        return True
    # What has no way of its own besides its builtin's is that and its attributes.
    base = anatomy.builtin_under(cls)
    return all(getattr(cls, way, None) is getattr(base, way, None) for way in _WAYS)


def _is_forgetful(cls: type) -> bool:
    package = package_of(cls)
    return (package, cls.__name__) in _FORGETFUL or (package, "*") in _FORGETFUL


def is_the_persons(cls: type) -> bool:
    """Say whether a class is the person's: the way in which it is pickled is meant for files."""
    return travels_by_value(cls) or own.is_own(cls.__module__)
