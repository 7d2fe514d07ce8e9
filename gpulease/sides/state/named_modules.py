"""Which modules, classes and objects of modules the names in a cell's text lead to."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any

from gpulease.sides.names.analysis import code_use
from gpulease.sides.names.module_use import ModuleUse


def named_by(use: ModuleUse, namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the modules and classes of libraries that a cell's dotted names lead through.

    The last one may be an object or a function that a module has.
    """
    for chain in use.chains:
        first, *rest = chain.split(".")
        value = _imported(use.bound[first]) if first in use.bound else namespace.get(first)
        name = name_of(value)
        for part in rest:
            if not name:
                break
            yield name, value
            value = vars(value).get(part)
            inside, name = f"{name}.{part}", name_of(value)
            if not name and attributes_of(value) is not None:
                yield inside, value
        if name:
            yield name, value


def _imported(dotted: str) -> Any:
    """Return what an ``import`` binds to this, as far as it is imported; None else.

    A package has a part as its attribute only when all of that is imported.
    """
    known, rest = dotted, list[str]()
    while known and known not in sys.modules:
        known, _, last = known.rpartition(".")
        rest.insert(0, last)
    value: Any = sys.modules.get(known)
    for part in rest:
        value = vars(value).get(part) if issubclass(type(value), ModuleType) else None
    return value


def name_of(value: Any) -> str:
    """Return the name of a module or of a class that is not the notebook's own, "" else."""
    if issubclass(type(value), ModuleType):  # a proxy of one that is gone cannot be asked
        return str(vars(value).get("__name__", ""))
    if issubclass(type(value), type) and value.__module__ != "__main__":
        return f"{value.__module__}.{value.__qualname__}"
    return ""  # also of what pretends to be one


def attributes_of(value: Any) -> Mapping[str, Any] | None:
    """Return what an object holds by name, without any code of its class."""
    held: Any = None
    if issubclass(type(value), type):
        held = vars(value)
    else:
        with suppress(AttributeError):
            held = object.__getattribute__(value, "__dict__")
    return held if isinstance(held, Mapping) else None


def read_by_functions(
    names: frozenset[str], namespace: Mapping[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Return what functions of the notebook lead to, each with the code that names it."""
    seen: set[str] = set()
    queue = [name for name in names if type(namespace.get(name)) is FunctionType]
    while queue:
        name = queue.pop()
        value = namespace.get(name)
        if name in seen or type(value) is not FunctionType:
            continue
        seen.add(name)
        for read in code_use(value.__code__).reads:
            queue.append(read)
            yield namespace.get(read), value.__code__
