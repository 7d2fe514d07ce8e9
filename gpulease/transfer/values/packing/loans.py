"""What home holds besides its names, held on the GPU's side until home has what became of it.

A cell may change such an object and then let go of it: no name leads to it any more, and home's
holder is to see the change all the same.  Only small containers of plain values are held: nobody
can see that, and next to no memory waits for it.  It knows nothing of packing.
"""

from __future__ import annotations

import gc
import itertools
import pickle
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from gpulease.transfer.values.groups import ATOMIC, Survey, name_root

#: Bytes of all that is held.
_MOST = 2**20
#: Bytes that are pickled to know of what arrives together whether it is changed later.
_MARKED = 2 * _MOST
#: Of a value that cannot be held as a whole, how many parts are looked at one by one.
_EACH = 1000
_LENT = frozenset({list, dict, set, bytearray})
_INSIDE = _LENT | {tuple, frozenset}
_PREFIX = "l:"


def loan_root(oid: str) -> str:
    """Return the root of an object that no name and no unit leads to."""
    return _PREFIX + oid


def lent_in(roots: Iterable[str]) -> list[str]:
    """Return the ids of such objects among roots."""
    return [root[len(_PREFIX) :] for root in roots if root.startswith(_PREFIX)]


class Loans:
    """What is held, by the names that led to it."""

    def __init__(self) -> None:
        self._held: dict[frozenset[str], dict[str, Any]] = {}
        self._sizes: dict[str, float] = {}
        self._marks: dict[str, object] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def arrived(self, names: Collection[str], units: Mapping[str, Any]) -> None:
        """These names came, with these objects that the other side knows by id."""
        self.left(names)
        self.lend(names, units)
        room = _MARKED
        for oid in units.keys() & self._sizes.keys():
            mark, size = _mark(units[oid]) if room > 0 else (None, 0)
            room -= size
            if mark is not None:
                self._marks[oid] = mark

    def changed(self, found: Mapping[str, Any]) -> set[str]:
        """Return the ids of those that may be other than they arrived."""
        marks = self._marks
        return {oid for oid, obj in found.items() if marks.get(oid) != (_mark(obj)[0] or obj)}

    def lend(self, names: Collection[str], units: Mapping[str, Any]) -> None:
        """Hold these, which the other side knows by id and holds, and these names lead to."""
        able = {oid: obj for oid, obj in units.items() if type(obj) in _LENT}
        self.forget(able)
        room = _MOST - sum(self._sizes.values())
        whole = _size(list(able.values()), room)
        if whole is not None:
            self._hold(names, able, whole)
            return
        for oid, obj in list(able.items())[:_EACH]:
            size = _size([obj], room)
            if size is not None:
                self._hold(names, {oid: obj}, size)
                room -= size

    def _hold(self, names: Collection[str], units: Mapping[str, Any], size: int) -> None:
        if units:
            self._held.setdefault(frozenset(names), {}).update(units)
            self._sizes.update(dict.fromkeys(units, size / len(units)))

    def left(self, names: Collection[str]) -> None:
        """The other side has other values of these names: what they led to is its own."""
        for known in [known for known in self._held if not known.isdisjoint(names)]:
            self.forget(list(self._held[known]))

    def forget(self, oids: Collection[str]) -> None:
        """The other side has no such objects, or has what became of them."""
        if not self._sizes.keys().isdisjoint(oids):
            for known, held in list(self._held.items()):
                for oid in held.keys() & set(oids):
                    del held[oid], self._sizes[oid]
                    self._marks.pop(oid, None)
                if not held:
                    del self._held[known]

    def clear(self) -> None:
        """The other side is gone."""
        self._held.clear()
        self._sizes.clear()
        self._marks.clear()

    def adrift(
        self, survey: Survey, gone: Collection[str], look: Callable[[list[str]], Survey]
    ) -> tuple[dict[str, Any], set[str]]:
        """Return what no name leads to any more, and the names that did.

        ``survey`` is of all names that were touched, ``look`` surveys others.
        """
        found: dict[str, Any] = {}
        before: set[str] = set()
        for names, held in list(self._held.items()):
            near = [g for n in names if (g := survey.by_root.get(name_root(n))) is not None]
            if not near and names.isdisjoint(gone):
                continue  # nobody looked at them
            rest = [n for n in names if name_root(n) not in survey.by_root]
            left = dict(held)
            for group in itertools.chain(near, survey.groups, look(rest).groups):
                met = [oid for oid, obj in left.items() if id(obj) in group.inner]
                self._led_to(met, names, frozenset(group.names))
                for oid in met:
                    del left[oid]
                if not left:
                    break
            found |= left
            before.update(names if left else ())
        return found, before

    def _led_to(self, oids: list[str], before: frozenset[str], names: frozenset[str]) -> None:
        """Other names lead to these than before."""
        if not oids or not names or names == before:
            return
        held = self._held[before]
        self._held.setdefault(names, {}).update({oid: held.pop(oid) for oid in oids})
        if not held:
            del self._held[before]


class Lent:
    """At home: which names led to what the other side knows by an id."""

    def __init__(self) -> None:
        self._by_name: dict[str, set[str]] = {}

    def sent(self, names: Collection[str], oids: Iterable[str]) -> None:
        """The other side has these names now, with these objects in them."""
        self.left(names)
        known = set(oids)
        if known:
            self._by_name.update(dict.fromkeys(names, known))

    def left(self, names: Iterable[str]) -> None:
        """These names are deleted here, or the other side is gone."""
        for name in names:
            self._by_name.pop(name, None)

    def clear(self) -> None:
        """The other side is gone."""
        self._by_name.clear()

    def names_of(self, oids: Collection[str]) -> list[str]:
        """Return the names that led to any of these."""
        wanted = set(oids)
        return [n for n, known in self._by_name.items() if not known.isdisjoint(wanted)]

    def let_go(self, gone: Collection[str], home: Collection[str]) -> dict[str, set[str]]:
        """Return names by what is ``gone`` there, but for what came ``home`` before that."""
        out: dict[str, set[str]] = {}
        for name, known in self._by_name.items() if gone or home else ():
            known.difference_update(home)
            for oid in known.intersection(gone):
                out.setdefault(oid, set()).add(name)
        for known in self._by_name.values() if out else ():
            known.difference_update(out)
        return out


def _mark(obj: Any) -> tuple[object, int]:
    """Return what differs where ``obj`` is another or holds others, and its bytes; None: unknown.

    An equal container in the place of one that was there is another.
    """
    parts: dict[int, Any] = {}
    found = [obj]
    while found:
        fresh = {
            id(part): part for part in found if type(part) in _INSIDE and id(part) not in parts
        }
        parts |= fresh
        found = gc.get_referents(*fresh.values()) if fresh else []
    try:
        content = pickle.dumps(obj, 5)
    except RecursionError:
        return None, 0
    return (frozenset(parts), content), len(content)


def _size(objects: list[Any], most: float) -> int | None:
    """Return the bytes of containers; None where it holds other than plain values, or is more."""
    seen: set[int] = set()
    total, found = 0, objects
    while found:
        fresh = {id(part): part for part in found if id(part) not in seen}
        if not all(type(part) in _INSIDE or type(part) in ATOMIC for part in fresh.values()):
            return None
        total += sum(map(sys.getsizeof, fresh.values()))
        if total > most:
            return None
        seen |= fresh.keys()
        found = gc.get_referents(*(p for p in fresh.values() if type(p) in _INSIDE))
    return total
