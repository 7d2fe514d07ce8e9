"""What an object is by its class: the notebook's or a library's, its attributes or more."""

from __future__ import annotations

import functools
import operator
import sys
import types
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from gpulease.sides.libraries import package_of

from . import anatomy, own, rebuild, ways

_WAYS = (
    "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__",
    "__getnewargs_ex__",
)  # fmt: skip
#: Where a class is by chance, and on the other side perhaps not; multiprocessing has the notebook
#: under another name, too.
_NO_HOME = sys.stdlib_module_names | {"__main__", "__mp_main__"}
#: Library classes whose ``__getstate__`` gives copies, leaves out what a cell can read, or changes
#: what is looked at (statsmodels' results).  patsy's cannot be pickled, so statsmodels makes them
#: again, with the names that its caller has.
_FORGETFUL = {
    ("bs4", "BeautifulSoup"),
    ("collections", "Counter"),
    ("patsy", "*"),
    ("sqlalchemy", "MetaData"),
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


def is_copy(space: Mapping[str, Any], namespace: Mapping[str, Any]) -> bool:
    """Say whether globals are a copy of the notebook's: attrs makes one for each class."""
    names = {"__name__", "__builtins__"}
    same = {name for name in names if space.get(name, space) is namespace.get(name)}
    return space is not namespace and same == names


def copies(classes: Iterable[type], namespace: Mapping[str, Any]) -> list[Any]:
    """Return such copies that methods of these classes have: most of what is in one is not used."""
    methods = (each for cls in classes for each in list(vars(cls).values()))
    spaces = {id(each.__globals__): each.__globals__ for each in methods
              if type(each) is types.FunctionType}  # fmt: skip
    return [space for space in spaces.values() if is_copy(space, namespace)]


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


#: By class, the names that its code has.
_named: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()


def noted(obj: Any) -> dict[str, Any]:
    """Return the attributes that no code of its class names: a cell noted them on an object.

    A library's way of pickling leaves out what it does not know: ``image.label = "cat"``.
    """
    kind = type(obj)
    if not anatomy.made_by_python(kind) or issubclass(kind, types.ModuleType):
        return {}
    space = anatomy.space_of(obj) or {}
    if kind not in _named:
        parts = [each for base in kind.__mro__ for each in vars(base).items()]
        held = (part for _, value in parts for part in own.parts_of(value))
        codes = (each.__code__ for each in held if type(each) is types.FunctionType)
        names = frozenset(name for name, _ in parts).union(*map(_names, codes))
        _named[kind] = names.difference(functools.WRAPPER_ASSIGNMENTS)  # of ``functools.wraps``
    return {name: value for name, value in space.items() if name not in _named[kind]}


def _names(code: types.CodeType) -> set[str]:
    found = {*code.co_names, *(each for each in code.co_consts if type(each) is str)}
    inner = (each for each in code.co_consts if type(each) is types.CodeType)
    return found.union(*map(_names, inner))


def is_the_persons(cls: type) -> bool:
    """Say whether a class is the person's: the way in which it is pickled is meant for files.

    That of a class that a library has made while it runs, as SQLAlchemy does, is the library's.
    """
    if not travels_by_value(cls):
        return own.is_own(cls.__module__)
    return not any(way in vars(base) for base in cls.__mro__[:-1] for way in _WAYS) or (
        cls.__module__ == "__main__" or cls.__module__ not in sys.modules
    )


def with_noted(obj: Any, reduced: Any) -> Any:
    """Add to a library's way what was noted on an object, unless it is in that already."""
    more = noted(obj)
    if more and reduced is NotImplemented:
        reduced = obj.__reduce_ex__(5)
    if not more or type(reduced) is not tuple:
        return reduced
    made, args, state, items, pairs, fill = (*reduced, *(None,) * 4)[:6]
    if type(state) is dict:
        more = {name: value for name, value in more.items() if name not in state}
    if not more:
        return reduced
    return made, args, (fill, state, more), items, pairs, rebuild.fill_noted
