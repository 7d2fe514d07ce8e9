"""What a notebook registers with a library under a name, for cells that use it by that name.

These are dialects of csv, and accessors of pandas and polars (``df.geo``) of which a variable of
the notebook is the class.
"""

from __future__ import annotations

import csv
import secrets
import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from gpulease.sides.libraries import CSV_DIALECT

Values = dict[str, Any]

#: Library -> classes that take accessors, and what its descriptor calls the accessor's class.
_OWNERS = {
    "pandas": (("DataFrame", "Series", "Index"), "_accessor"),
    "polars": (("DataFrame", "LazyFrame", "Series", "Expr"), "_ns"),
}
#: Accessor -> what both sides know it by: a class that is registered anew is another one.
_marks: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


class Late:
    """Makes an accessor of a class of the notebook that is not here yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, obj: Any) -> Any:
        """Return the accessor of ``obj``; a name that lives away says where."""
        return eval(self.name, vars(sys.modules["__main__"]))(obj)  # noqa: S307 - a variable's name


def dialects() -> Values:
    """Return by name what csv knows of each dialect."""
    found = {name: csv.get_dialect(name) for name in csv.list_dialects()}
    return {n: {part: getattr(d, part) for part in CSV_DIALECT} for n, d in found.items()}


def put_dialects(values: Mapping[str, Any]) -> None:
    """Register dialects anew; None for one that is no more."""
    for name, parts in values.items():
        if parts is not None:
            csv.register_dialect(name, **parts)
        elif name in csv.list_dialects():
            csv.unregister_dialect(name)


def accessors(library: str) -> Values:
    """Return by owner and name the accessors that are classes of the notebook."""
    found = {}
    for owner, name, descriptor in _descriptors(library):
        made: Any = getattr(descriptor, _OWNERS[library][1], None)
        if type(made) is Late:
            found[f"{owner}.{name}"] = made.name, _marks[made]
        elif isinstance(made, type) and _variables().get(known := made.__name__) is made:
            found[f"{owner}.{name}"] = known, _marks.setdefault(made, secrets.token_hex(8))
    return found


def put_accessors(library: str, values: Mapping[str, Any]) -> None:
    """Register accessors as they are on the other side; None for one that is no more."""
    for key, value in values.items():
        name = key.partition(".")[2]
        owner = getattr(sys.modules[library], key.partition(".")[0])
        if value is None:
            if name in vars(owner):
                delattr(owner, name)
            owner._accessors.discard(name)  # noqa: SLF001 - as the library registers one
            continue
        made = _variables().get(value[0])
        accessor = made if isinstance(made, type) else Late(value[0])
        _marks[accessor] = value[1]
        setattr(owner, name, _descriptor(library)(name, accessor))
        owner._accessors.add(name)  # noqa: SLF001


def _variables() -> dict[str, Any]:
    return vars(sys.modules["__main__"])


def _descriptors(library: str) -> Iterator[tuple[str, str, Any]]:
    for owner in _OWNERS[library][0]:
        cls = getattr(sys.modules[library], owner, None)
        for name in sorted(getattr(cls, "_accessors", ())):
            if name in vars(cls):
                yield owner, name, vars(cls)[name]


def _descriptor(library: str) -> Any:
    if library == "polars":
        return sys.modules["polars.api"].NameSpace
    module = sys.modules["pandas.core.accessor"]
    return getattr(module, "Accessor", None) or module.CachedAccessor
