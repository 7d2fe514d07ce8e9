"""Which abstract classes of modules a notebook's class is registered with: ``Mapping.register(C)``.

The abstract class knows its virtual subclasses, and these do not know it.  Of abstract classes of
the notebook the register is part of their content; a module's do not travel.
"""

from __future__ import annotations

import abc
import weakref
from collections.abc import Iterable
from typing import Any

from gpulease.sides.looks import ask, is_a

from . import cloudpickle_names

_book: weakref.WeakKeyDictionary[type, list[type]] = weakref.WeakKeyDictionary()
#: What Python counts registrations by, at the last look: none is ever taken back.
_seen: list[object] = []


def abstract_classes_of(cls: type) -> list[type]:
    """Return the abstract classes of modules with which ``cls`` is registered, in a fixed order."""
    if abc.get_cache_token() not in _seen:
        _look()
    return _book.get(cls, [])


def register(cls: type, abstract: Iterable[Any]) -> None:
    """Register ``cls`` with these where it is not."""
    have = abstract_classes_of(cls)
    for each in abstract:
        if each not in have:
            abc.ABCMeta.register(each, cls)


def _look() -> None:
    """Ask all abstract classes that there are: some 20 ms with many libraries imported."""
    token = abc.get_cache_token()
    found: weakref.WeakKeyDictionary[type, list[type]] = weakref.WeakKeyDictionary()
    for each in _abstract_classes():
        registered = abc._get_dump(each)[0]  # type: ignore[attr-defined]  # noqa: SLF001
        classes = [cls for ref in registered if (cls := ref()) is not None and _may_travel(cls)]
        # A library's module may warn of a name that is asked for: only where it matters.
        if classes and cloudpickle_names.is_named(each):
            for cls in classes:
                found.setdefault(cls, []).append(each)
    _book.clear()
    for cls, abstract in found.items():
        _book[cls] = sorted(abstract, key=lambda each: (each.__module__, each.__qualname__))
    _seen[:] = [token]


def _may_travel(cls: type) -> bool:
    """Say whether a class may be one that no module has by name."""
    return ask(cls, "__module__") == "__main__" or "<" in (ask(cls, "__qualname__") or "")


def _abstract_classes() -> list[Any]:
    seen: dict[int, type] = {}  # by id: a metaclass may compare in a way of its own, or warn
    queue: list[type] = [object]
    while queue:
        below: list[type] = type.__subclasses__(queue.pop())
        fresh = {id(cls): cls for cls in below if id(cls) not in seen}
        seen |= fresh
        queue += fresh.values()
    return [cls for cls in seen.values() if is_a(cls, abc.ABCMeta)]
