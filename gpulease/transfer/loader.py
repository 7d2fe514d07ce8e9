"""Loads a parcel beside what is here: new classes first, then each component as a whole."""

from __future__ import annotations

import argparse
import gc
import io
import math
import pickle
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gpulease.errors import GPULeaseError

from . import anatomy, classes, in_place, lasting, own, pieces, rebuild
from . import stayed as stayed_kind
from .api import PackedComponent, Parcel, StageError
from .classes import Undo
from .roots import plain
from .tables import Counterparts


@dataclass
class Staged:
    """A parcel that is loaded and not in place yet."""

    parcel: Parcel
    undo: Undo
    values: dict[str, Any] = field(default_factory=dict)
    #: Components that this side cannot open, and why: they are kept as they came.
    sealed: list[tuple[PackedComponent, str]] = field(default_factory=list)
    #: Contents for pinned objects of this side.
    contents: dict[str, Any] = field(default_factory=dict)
    #: This side's counterparts of the sender's pins.
    counterparts: dict[str, Any] = field(default_factory=dict)
    #: Arrays that become read-only when all is loaded.
    locked: list[Any] = field(default_factory=list)
    #: What libraries do to objects that are here already, at the end of the commit.
    later: list[Callable[[Undo], None]] = field(default_factory=list)
    #: By id, ``id`` of the lasting objects that it leads to.
    lasting: dict[str, int] = field(default_factory=dict)


class Here:
    """What this side gives to the pickles that it loads (see ``rebuild.Here``)."""

    def __init__(self, side: str, namespace: dict[str, Any], known: Mapping[str, Any],
                 tables: tuple[Counterparts, Counterparts, Counterparts],
                 pins: Mapping[str, Any]) -> None:  # fmt: skip
        self.namespace = namespace
        self.side = side
        self._known = known
        self._classes, self._others, self._stays = tables
        self._pins = pins
        self.locked: list[Any] = []
        #: A library's plan for the commit.
        self.plans: dict[str, Any] = {}
        self.setters: dict[type, Callable[[Any, dict[str, Any]], None]] = {}
        self.later: list[Callable[[Undo], None]] = []
        #: What comes of large memory: size, runs of pieces, and these.
        self.memories: dict[str, tuple[int, tuple[pieces.Run, ...], list[Any]]] = {}
        self._written: set[str] = set()
        #: By id, ``id`` of this side's lasting objects to which what comes leads.
        self.lasting: dict[str, int] = {}
        self.undo = Undo()

    def seed(self, key: str) -> Any:
        """Return what both sides know by this key."""
        if key in self._known:
            return self._known[key]
        if key.startswith("rc:"):
            return lasting.setting(key)
        if key[2:] not in self._pins:
            raise StageError("something that was held here is gone")
        return self._pins[key[2:]]

    def class_of(self, oid: str) -> Any:
        """Return a class of the notebook."""
        found = self._classes.get(oid)
        if found is None:
            raise StageError(f"the class {oid} is not here")
        return found

    def marker(self, oid: str) -> Any:
        """Return an ``object()``."""
        return self._found(oid, object)

    def variable(self, oid: str, parts: tuple[Any, ...]) -> Any:
        """Return a type variable or an alias of types."""
        return self._found(oid, lambda: classes.make_type_variable(*parts))

    def not_a_number(self, oid: str) -> Any:
        """Return a NaN."""
        return self._found(oid, lambda: float("nan"))

    def found(self, oid: str) -> Any:
        """Return this side's lasting object with this id, None where there is none."""
        found = self._others.get(oid)
        self.lasting[oid] = id(found)
        return found

    def bind(self, oid: str, obj: Any) -> None:
        """Let ``oid`` be the id of a lasting object of this side."""
        self.lasting[oid] = id(obj)
        self._others.bind(oid, obj)

    def _found(self, oid: str, make: Any) -> Any:
        found = self._others.get(oid)
        if found is None:
            found = make()
            self._others.bind(oid, found)
        return found

    def stayed(self, oid: str, kind: str, cls: Any) -> Any:
        """Return an object that stayed: itself, or what stands for it."""
        found = self._stays.get(oid)
        if found is None:
            gone = oid.startswith(self.side)
            found = stayed_kind.standing(stayed_kind.Leaf(oid, kind, cls, gone))
            self._stays.bind(oid, found)
        return found

    def large(self, oid: str, dtype: Any, shape: Any, strides: Any, writeable: bool) -> Any:
        """Return an array whose memory travels in pieces, the one that is here if there is one."""
        found = self.large_memory(
            oid,
            lambda known: pieces.same_layout(known, dtype, shape, strides),
            lambda part: pieces.new(part, dtype, shape, strides),
            partial(self._others.bind, oid),
        )
        if not found.flags.writeable:  # a view of it may be writeable all the same
            self.undo.add(lambda: found.setflags(write=False))
            found.setflags(write=True)
        if not writeable:
            self.undo.add(lambda: found.setflags(write=True))
            self.lock_later(found)
        return found

    def large_memory(self, oid: str, is_same: Callable[[Any], bool], make: Callable[[Any], Any],
                     keep: Callable[[Any], None]) -> Any:  # fmt: skip
        """Return what has the memory ``oid``, written; ``make`` a new one of all, ``keep`` it."""
        size, runs, parts = self.memories[oid]
        found = self._others.get(oid)
        if found is not None and is_same(found):
            self._write(oid, found, runs, parts)
            return found
        if runs != pieces.every(size):
            raise StageError("memory that was here is gone")
        made = make(*parts)
        keep(made)
        return made

    def _write(self, oid: str, found: Any, runs: tuple[pieces.Run, ...], parts: list[Any]) -> None:
        if oid not in self._written:  # the parts may hold what was here before by now
            self._written.add(oid)
            pieces.write(found, runs, parts, self.undo)

    def whole(self, component: PackedComponent) -> PackedComponent:
        """Return a component with all pieces of its memory, of which some may be here only."""
        own, parts = component.own_buffers()
        memories = []
        for oid, size, runs in component.memories:
            sent, parts = parts[: len(runs)], parts[len(runs) :]
            every = pieces.every(size)
            if runs != every:
                found = self._others.get(oid)
                if found is None or pieces.size(found) != size:
                    raise StageError("memory that was here is gone")
                self._write(oid, found, runs, sent)
                sent = pieces.cut(found, every)
            sent = [part if isinstance(part, bytes | bytearray) else bytes(part) for part in sent]
            memories.append((oid, size, every))
            own += sent
        return replace(component, buffers=own, memories=tuple(memories), same_there=False, rests=0)

    def take_memories(self, component: PackedComponent) -> None:
        """Let what is loaded next find its large memory."""
        buffers = iter(component.own_buffers()[1])
        for oid, size, runs in component.memories:
            self.memories[oid] = size, runs, [next(buffers) for _ in runs]

    def lock_later(self, array: Any) -> None:
        """Make an array read-only once all is loaded."""
        self.locked.append(array)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, buffers: list[Any], here: Here) -> None:
        super().__init__(file, buffers=buffers)
        self.here = here
        #: Objects that are made before anything is put into one.
        self.deep: list[Any] = []

    def load_deep(self) -> None:
        """Make the empty objects that the stream begins with, and fill them."""
        self.deep = [anatomy.put_together(kind, made_from) for kind, made_from in self.load()]
        for obj in self.deep:
            in_place.put(obj, self.load())

    def persistent_load(self, pid: Any) -> Any:
        if pid == "math":
            return math.nan
        if pid == "argparse":
            return argparse.SUPPRESS
        if pid == "numpy":
            import numpy as np

            return np.nan
        if type(pid) is tuple:
            return self.deep[pid[1]] if pid[0] == "deep" else vars(pid[1])
        return self.here.not_a_number(pid)


def stage(parcel: Parcel, here: Here, bound: Counterparts) -> Staged:
    """Load all of a parcel; raises ``StageError`` and leaves nothing behind."""
    staged = Staged(parcel, Undo())
    collecting = gc.isenabled()
    gc.disable()
    rebuild.CURRENT.here, here.undo = here, staged.undo
    own.catch_up(parcel.own)
    try:
        for oid, pickled in parcel.shells:
            if bound.get(oid) is None:
                _make_shell(oid, pickled, here, bound)
        classes_first = sorted(parcel.components, key=lambda each: not _has_classes(each))
        late = [each for each in classes_first if not _try(each, here, staged)]
        _load_late(late, here, staged)
        staged.locked, staged.later, staged.lasting = here.locked, here.later, here.lasting
    except BaseException as error:
        staged.undo.run()
        if isinstance(error, StageError) or not isinstance(error, Exception):
            raise
        raise StageError(_what_failed(error)) from error
    finally:
        rebuild.CURRENT.here = None
        # What libraries do later may lead to ``here``: no circle.
        here.undo, here.plans, here.later = Undo(), {}, []
        if collecting:
            gc.enable()
    return staged


def _has_classes(component: PackedComponent) -> bool:
    return any(root[0] == "c" for root in component.roots)


def _try(component: PackedComponent, here: Here, staged: Staged) -> bool:
    """Load a component, unless code that runs then may read names of the notebook."""
    if _has_classes(component):
        _load_component(component, here, staged)
        return True
    used = staged.parcel.classes.get(plain(frozenset(component.roots)), ())
    if any(type(here.class_of(oid).__hash__) is types.FunctionType for oid in used):
        return False
    try:
        _load_component(component, here, staged)
    except StageError:
        return False
    return True


def _load_late(late: list[PackedComponent], here: Here, staged: Staged) -> None:
    """Load what runs code of the notebook, over the names that came with it."""
    while late:
        _bind(staged, here.namespace)
        failed: list[tuple[PackedComponent, StageError]] = []
        for component in late:
            try:
                _load_component(component, here, staged)
            except StageError as error:
                failed.append((component, error))
        if len(failed) == len(late):
            raise failed[0][1]
        late = [component for component, _ in failed]


def _bind(staged: Staged, namespace: dict[str, Any]) -> None:
    """Bind what is loaded already, until it is taken back or committed with the rest."""
    values = {
        root[2:]: value
        for root, value in staged.values.items()
        if root[0] == "n" and root[2:].isidentifier()
    }
    before = {name: namespace[name] for name in values.keys() & namespace.keys()}

    def take_back() -> None:
        for name in values.keys() - before.keys():
            namespace.pop(name, None)
        namespace.update(before)

    staged.undo.add(take_back)
    namespace.update(values)


def _make_shell(oid: str, pickled: bytes, here: Here, bound: Counterparts) -> None:
    try:
        bound.bind(oid, classes.make_shell(*_load(pickled, here)))
    except Exception as error:
        raise StageError(_what_failed(error), ["c:" + oid]) from error


def _what_failed(error: Exception) -> str:
    told = (
        error.sentence if isinstance(error, GPULeaseError) else f"{type(error).__name__}: {error}"
    )
    return f"it does not load on the other side ({told})"


def _load(pickled: bytes, here: Here) -> Any:
    return _Unpickler(io.BytesIO(pickled), [], here).load()


def _lack(component: PackedComponent, error: Exception) -> str:
    """Return in words what this side lacks to open a component, "" where it is something else.

    A class of the notebook is needed by others, and what is held here needs its content.
    """
    if component.filled or any(root[0] != "n" for root in component.roots):
        return ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"it needs the package {error.name.partition('.')[0]}, which is not installed here"
    if isinstance(error, AttributeError) and str(error).startswith("Can't get attribute"):
        return "it needs another version of a package than the one that is installed here"
    return ""


def _load_component(component: PackedComponent, here: Here, staged: Staged) -> None:
    try:
        here.take_memories(component)
        own = component.own_buffers()[0]
        unpickler = _Unpickler(io.BytesIO(component.stream), own, here)
        memo = _load_roots(component, unpickler, here, staged)
    except StageError as error:
        raise StageError(str(error), error.roots or component.roots) from error
    except Exception as error:
        for root in component.roots:
            staged.values.pop(root, None)
        if lack := _lack(component, error):
            staged.sealed.append((here.whole(component), lack))
            return
        raise StageError(_what_failed(error), component.roots) from error
    for index, pin in component.held:
        staged.counterparts[pin] = memo[index] if index >= 0 else unpickler.deep[-1 - index]


def _load_roots(component: PackedComponent, unpickler: _Unpickler, here: Here,
                staged: Staged) -> dict[int, Any]:  # fmt: skip
    """Load what is in a component; return its objects in the order that the stream has them."""
    unpickler.load()  # what both sides know
    if component.deep:
        unpickler.load_deep()
    for root in component.roots:
        if root[0] == "c":
            cls = here.class_of(root[2:])
            classes.apply_methods(cls, unpickler.load(), staged.undo)
            classes.apply_rest(cls, unpickler.load(), staged.undo)
        elif root[0] != "p" or not component.filled:
            staged.values[root] = unpickler.load()
    for pin in component.filled:
        staged.contents[pin] = unpickler.load()
    return unpickler.memo.copy()
