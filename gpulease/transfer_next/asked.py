"""Picklers that are asked for every object, where that of C would not do.

They cost twice as much: a component is packed by one of them only where it has to be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from gpulease.sides.libraries import library

from . import anatomy, in_place
from .pickler import KINDS, Pickler, travels_by_value
from .refuse import RefusedError

TOO_DEEP = "objects that hold each other too deeply"
_FLAT = (list, dict, set)


class Asked(Pickler):
    """For NaNs, each of which is itself only, and for ``vars`` of a namespace.

    The dictionary of a ``SimpleNamespace`` cannot be replaced, so its other names mean the object.
    """

    def persistent_id(self, obj: Any) -> Any:
        """Return what stands for an object."""
        if type(obj) is dict and (owner := self.spaces.get(id(obj))) is not None:
            return "vars", owner
        if type(obj) is not float or obj == obj:  # noqa: PLR0124 - that is what a NaN is
            return None
        np = library("numpy")
        if obj is math.nan:  # noqa: PLW0177 - which one it is
            return "math"
        if np is not None and obj is np.nan:
            return "numpy"
        return self.met.others.id_of(obj)


class Token:
    """Stands for an object whose content has a place of its own in the stream."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Deep(Asked):
    """For objects that hold each other more deeply than a pickler may call itself.

    First come empty objects, then the content of each, the innermost first, then the roots.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: Id -> place in ``order``; -1 while the objects inside are looked at.
        self.numbers: dict[int, int] = {}
        self.order: list[Any] = []
        self._written = 0

    def lay_out(self, roots: Iterable[Any]) -> None:
        """Find the objects, the innermost first; what both sides know is left out."""
        numbers, known = self.numbers, self.memo.copy()
        for root in roots:
            pending = [iter((root,))]
            path: list[Any] = [None]
            while pending:
                each = next(pending[-1], self)
                if each is self:
                    pending.pop()
                    self._close(path.pop())
                elif type(each) is tuple:
                    pending.append(iter(each))
                    path.append(None)
                elif id(each) not in numbers and id(each) not in known and self._is_flat(each):
                    numbers[id(each)] = -1
                    pending.append(_inside(each))
                    path.append(each)

    def _close(self, obj: Any) -> None:
        if obj is not None:
            self.numbers[id(obj)] = len(self.order)
            self.order.append(obj)

    def _is_flat(self, obj: Any) -> bool:
        kind = type(obj)
        if kind in _FLAT or kind in in_place.NAMED:
            return id(obj) not in self.spaces
        if kind in KINDS or not self.is_raw(kind) or not travels_by_value(kind):
            return False
        return in_place.can_be_filled(obj)

    def dump_flat(self) -> None:
        """Write the empty objects and what is in them."""
        self.dump([(type(obj), anatomy.take_apart(obj)[0]) for obj in self.order])
        for number, obj in enumerate(self.order):
            self._written = number
            self.dump(self._content(obj))
        self._written = len(self.order)

    def _content(self, obj: Any) -> Any:
        content, direct = in_place.content_of(obj), self._direct
        if type(obj) is dict:
            return {direct(key): direct(value) for key, value in content.items()}
        if type(obj) in _FLAT:
            return type(obj)(map(direct, content))
        space, slots, inner = content
        slots = slots and {name: direct(value) for name, value in slots.items()}
        if type(inner) is list:
            inner = list(map(direct, inner))
        elif type(inner) is tuple:
            inner = tuple(
                list(map(direct, part)) if type(part) is list else direct(part) for part in inner
            )
        return direct(space), slots, inner

    def _direct(self, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(self._direct, value))
        number = self.numbers.get(id(value))
        return value if number is None else Token(number)

    def persistent_id(self, obj: Any) -> Any:
        """Return what stands for an object."""
        if type(obj) is Token:
            return "deep", obj.number
        number = self.numbers.get(id(obj))
        if number is None:
            return super().persistent_id(obj)
        if number >= self._written:  # what is made from it may look into it, and it is empty yet
            raise RefusedError(TOO_DEEP, obj)
        return "deep", number


def _inside(obj: Any) -> Iterator[Any]:
    """Return what an object holds directly."""
    content = in_place.content_of(obj)
    if type(obj) is dict:
        return (part for pair in content.items() for part in pair)
    if type(obj) in _FLAT:
        return iter(content)
    space, slots, inner = content
    parts = inner if type(inner) is tuple else (inner,)
    held = [each for part in parts for each in (part if type(part) is list else (part,))]
    return iter([space, *(slots or {}).values(), *held])
