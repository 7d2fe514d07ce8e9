"""Which objects both sides know, by id.

Owns the object half of the two ledgers: object id (*oid*) to live object and back.  It knows
nothing of names, contents or versions.  An entry never keeps an object alive when the object can
be referred to weakly; cells and globals dictionaries, which cannot, are found again through the
functions that hold them.  A raw ``id()`` proves nothing here: every match is checked against the
live object, and what cannot be proved gets a new oid.

Lists, dicts and sets cannot be referred to weakly: they are borrowed, held only as long as somebody
else needs them.  A thread gives them up, so that ``del big`` lowers memory within the cell.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from gpulease.transfer_next.references import references

#: Where a function holds something: an index into ``__closure__``, or this for ``__globals__``.
GLOBALS_SLOT = -1
#: Where an id begins that is made of the names of a module and its attribute: both sides make it.
OF_MODULES = "h" + "0" * 8 + "."
#: Where the letter of a side and its token end in an object's id.
_TOKEN = 9
#: Seconds between two looks, and how many objects one look takes.
_PERIOD = 0.05
#: Of a processor's time, what looking may take: whether units are needed may take long to tell.
_SHARE = 0.05
_SLICE = 2000


def is_oid(text: str) -> bool:
    """Say whether this is an object's id, and no name."""
    return text[_TOKEN : _TOKEN + 1] == "." and text[:1] in "ha"


class Registry:
    """Object ids of one side; not thread safe, used under the side's transfer lock."""

    def __init__(self, side: str) -> None:
        self.side = side
        self._prefix = f"{side}{secrets.token_hex(4)}"
        self._count = itertools.count(1)
        self._get: dict[str, Callable[[], Any]] = {}
        self.borrowed = Borrowed()
        self._oids: dict[int, str] = {}
        #: Ids (``id()``) of objects that were entered as a module's: most others are told by that.
        self.of_modules: set[int] = set()
        self._holders: dict[str, list[tuple[weakref.ref[types.FunctionType], int]]] = {}

    def new_oid(self) -> str:
        """Return an oid that no object has yet, on either side."""
        return f"{self._prefix}.{next(self._count)}"

    def find(self, obj: Any) -> str | None:
        """Return the oid of ``obj`` if it is provably known, else None."""
        oid = self._oids.get(id(obj))
        if oid is not None and self.get(oid) is obj:
            return oid
        return None

    def of_module(self, obj: Any) -> str | None:
        """Return the oid of what was entered as a module's, None of all else."""
        oid = self.find(obj) if id(obj) in self.of_modules else None
        return oid if oid is not None and oid.startswith(OF_MODULES) else None

    def knows(self, obj: Any) -> bool:
        """Say whether ``obj`` has an oid."""
        return self.find(obj) is not None

    def oid(self, obj: Any) -> str:
        """Return the oid of ``obj``, a new one where it has none."""
        oid = self.find(obj)
        if oid is None:
            oid = self.new_oid()
            self.bind(oid, obj)
        return oid

    def oids(self, objects: Collection[Any]) -> list[str]:
        """Return the oid of each, as ``oid`` does: of thousands in few steps."""
        entered = self._entered(objects)
        unknown = {id(obj): obj for obj, oid in zip(objects, entered, strict=True) if oid is None}
        if not unknown:
            return entered
        try:
            fresh = [weakref.ref(obj) for obj in unknown.values()]
        except TypeError:
            return [self.oid(obj) for obj in objects]
        new = [f"{self._prefix}.{number}" for number in islice(self._count, len(fresh))]
        self._get.update(zip(new, fresh, strict=True))
        self._oids.update(zip(unknown, new, strict=True))
        return [oid or self._oids[id(obj)] for obj, oid in zip(objects, entered, strict=True)]

    def _entered(self, objects: Collection[Any]) -> list[Any]:
        """Return what ``find`` says of each."""
        oids = map(self._oids.get, map(id, objects))
        get = self._get
        return [
            oid
            if oid is None or ((ref := get.get(oid)) is not None and ref() is obj)
            else self.find(obj)
            for obj, oid in zip(objects, oids, strict=True)
        ]

    def get(self, oid: str) -> Any:
        """Return the live object of ``oid``, or None when it is gone or unknown."""
        holders = self._holders.get(oid)
        if holders is not None and (found := next(_held(holders), None)) is not None:
            return found
        getter = self._get.get(oid)
        return getter() if getter is not None else self.borrowed.get(oid)

    def borrows(self, obj: Any) -> bool:
        """Say whether this table itself keeps ``obj`` alive, as it cannot be held weakly."""
        oid = self._oids.get(id(obj))
        return oid is not None and self.borrowed.get(oid) is obj

    def knows_any(self, oids: Collection[str]) -> bool:
        """Say whether any of these oids may have an object here."""
        tables = self._get, self._holders, self.borrowed.objects
        return not all(table.keys().isdisjoint(oids) for table in tables)

    def bind(self, oid: str, obj: Any) -> None:
        """Say that ``oid`` is ``obj`` from now on (weakly where the type allows it)."""
        try:
            self._get[oid] = weakref.ref(obj)
        except TypeError:
            self.borrowed.add(oid, obj)
        self._oids[id(obj)] = oid
        if oid.startswith(OF_MODULES):
            self.of_modules.add(id(obj))

    def held_oid(self, function: types.FunctionType, slot: int) -> str:
        """Return the oid of a function's cell or globals dictionary, found through functions."""
        held = _slot(function, slot)
        oid = self.find(held)
        if oid is None:
            oid = self.new_oid()
        self.bind_held(oid, function, slot)
        return oid

    def bind_held(self, oid: str, function: types.FunctionType, slot: int) -> None:
        """Say that ``oid`` is what ``function`` holds in ``slot``."""
        holders = self._holders.setdefault(oid, [])
        holders[:] = [(ref, at) for ref, at in holders if ref() is not None]
        if not any(ref() is function and at == slot for ref, at in holders):
            holders.append((weakref.ref(function), slot))
        self._oids[id(_slot(function, slot))] = oid

    def of_type(self, kind: type) -> list[Any]:
        """Return the live objects of exactly this type, which can be referred to weakly."""
        return [obj for ref in list(self._get.values()) if type(obj := ref()) is kind]

    def prune(self) -> list[str]:
        """Forget dead objects; return their oids."""
        dead = self.borrowed.dropped()
        dead += [oid for oid, ref in self._get.items() if ref() is None and self.get(oid) is None]
        dead += [oid for oid in self._holders if oid not in self._get and self.get(oid) is None]
        for oid in dead:
            self._get.pop(oid, None)
            self._holders.pop(oid, None)
        if dead:
            gone = set(dead)
            self._oids = {key: oid for key, oid in self._oids.items() if oid not in gone}
        return dead


def _slot(function: types.FunctionType, slot: int) -> Any:
    if slot == GLOBALS_SLOT:
        return function.__globals__
    closure = function.__closure__
    assert closure is not None
    return closure[slot]


def _held(holders: list[tuple[weakref.ref[types.FunctionType], int]]) -> Iterator[Any]:
    for ref, slot in holders:
        function = ref()
        if function is not None:
            yield _slot(function, slot)


class Borrowed:
    """Oid to object; what only this table holds goes away by itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, Any] = {}
        self._dropped: list[str] = []
        self._kept: list[tuple[dict[str, Any], Callable[[], bool]]] = []
        self._thread: threading.Thread | None = None

    def add(self, oid: str, obj: Any) -> None:
        """Hold ``obj`` while somebody else does."""
        with self._lock:
            self._objects[oid] = obj
            self._watch()

    def keep(self, objects: dict[str, Any], needed: Callable[[], bool]) -> None:
        """Hold ``objects`` while ``needed`` says so (asked on any thread).

        It speaks for what was kept of them before, too.
        """
        with self._lock:
            self._kept = [each for each in self._kept if not each[0].keys() <= objects.keys()]
            self._kept.append((objects, needed))
            self._objects |= objects
            self._watch()

    def kept(self) -> list[str]:
        """Return the oids of what is held because it is needed."""
        with self._lock:
            return [oid for objects, _ in self._kept for oid in objects]

    def _watch(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=_watch, args=(weakref.ref(self),), name="gpulease-registry", daemon=True
            )
            self._thread.start()

    def get(self, oid: str) -> Any:
        """Return the object, or None."""
        with self._lock:  # whoever gets it holds it before it may be given up
            return self._objects.get(oid)

    def dropped(self) -> list[str]:
        """Return the oids given up since the last call, after one more look at all."""
        while True:
            with self._lock:
                self._look_at_kept()
                before = len(self._objects)
                self._look(list(self._objects))
                if len(self._objects) == before:  # what one held may have held another
                    break
        with self._lock:
            out, self._dropped = self._dropped, []
        return out

    @property
    def objects(self) -> Mapping[str, Any]:
        """The table itself: whoever asks what refers to an object finds it."""
        return self._objects

    def tables(self) -> list[Any]:
        """Return what holds objects here: whoever counts references leaves these out."""
        return [self._objects, self._kept]

    @property
    def thread_id(self) -> int | None:
        """Native id of the watching thread, while there is one."""
        thread = self._thread
        return thread.native_id if thread is not None else None

    def look(self, start: int) -> int:
        """Give up what only we hold, of one slice; return where the next one starts, -1: none."""
        with self._lock:
            self._look_at_kept()
            oids = list(self._objects)
            if not oids and self._kept:
                return 0
            if not oids:
                self._thread = None
                return -1
            self._look(oids[start : start + _SLICE])
        return start + _SLICE if start + _SLICE < len(oids) else 0

    def _look_at_kept(self) -> None:
        self._kept = [(objects, needed) for objects, needed in self._kept if needed()]

    def _look(self, oids: list[str]) -> None:
        counts = references(self._objects, oids)
        unused = [oid for oid in oids if not counts[oid]]
        for oid in unused:
            del self._objects[oid]
        self._dropped += unused


def _watch(ref: weakref.ref[Borrowed]) -> None:
    pause = threading.Event()
    start, cost = 0, 0.0
    while start >= 0:
        pause.wait(max(_PERIOD, cost / _SHARE))
        table = ref()
        if table is None:
            return
        began = time.thread_time()
        start = table.look(start)
        cost = time.thread_time() - began
        del table
