"""Loads what arrived, completely, before anything of it becomes visible.

Owns the receiver's side of a pickle: references to units resolve to the live object or to a new
one made from its skeleton; contents of live units wait for the commit.  A group either loads
without error or is refused with its reason; nothing here touches a user's name.
"""

from __future__ import annotations

import functools
import importlib
import io
import math
import pickle
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gpulease.sides.hushed import hushed
from gpulease.sides.module_files import is_alike
from gpulease.transfer import frameworks
from gpulease.transfer.frameworks.base import Stage
from gpulease.transfer.frameworks.sealed import Culprit
from gpulease.transfer.registry import GLOBALS_SLOT, Registry
from gpulease.transfer.values import given_up
from gpulease.transfer.values.kinds import arrays_in_place, classes, constants, containers, enums
from gpulease.transfer.values.kinds.units import apply_content
from gpulease.transfer.values.names.culprit import find_culprit
from gpulease.transfer.values.state.own_objects import OwnObjects
from gpulease.transfer_next import locks, stayed


@dataclass
class Arrived:
    """One group as received: buffers are writable memory, or ``chunks.Partial`` before staging."""

    roots: tuple[str, ...]
    inband: bytes
    skeletons: dict[str, bytes]
    buffers: list[Any]
    #: The sender's digest of the content, where ``alike``.
    digest: bytes = b""
    #: Ids of objects that were written to on the other side since both were last the same.
    risen: tuple[str, ...] = ()
    #: Names to ids of values that are one and the same object here and there.
    lasting: Mapping[str, str] = field(default_factory=dict)
    #: See ``pickling.Alike``.
    alike: int = 0
    #: The digests of all buffers' chunks, one after the other, where the sender said them.
    chunks: bytes = b""
    #: Names of it that code must not see while it is loaded: here they are older.
    hidden: tuple[str, ...] = ()
    #: The types of its names' values on the other side.
    kinds: Mapping[str, str] = field(default_factory=dict)
    #: Names that its values' own code read there while they were packed.
    read: tuple[str, ...] = ()


class LoadError(Exception):
    """A group did not load: ``reason`` in words, ``lacks`` the units that nobody sent.

    ``missing`` is the name that its own code missed, if it was that.
    """

    def __init__(
        self,
        reason: str,
        lacks: frozenset[str] = frozenset(),
        culprit: Culprit | None = None,
        missing: str = "",
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lacks = lacks
        self.culprit = culprit
        self.missing = missing


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, staging: Staging, buffers: list[Any]) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self._staging = staging

    def find_class(self, module: str, name: str) -> Any:
        if module == _TOKENS:
            replaced = self._staging.tokens.get(name)
            if replaced is not None:
                return replaced
        if module == "__main__":
            raise pickle.UnpicklingError(f"refers to __main__.{name} by name only")
        found = super().find_class(module, name)
        if isinstance(found, type):
            given_up.met(found)
        if getattr(found, "gpulease_staged", False):
            return functools.partial(found, self._staging.stage)
        return found

    def persistent_load(self, pid: Any) -> Any:
        return self._staging.persistent(pid)


@contextmanager
def _hidden(ns: dict[str, Any], names: Iterable[str]) -> Iterator[None]:
    held = {name: ns.pop(name) for name in names if name in ns}
    try:
        yield
    finally:
        ns.update(held)


_TOKENS = "gpulease.transfer.values.kinds.tokens"


@dataclass
class Loaded:
    """A group in staging: values by name, contents by unit."""

    arrived: Arrived
    names: dict[str, Any]
    contents: dict[str, Any]
    #: What is put into objects of frameworks, and how far they were loaded.
    pairs: list[tuple[Any, Any]]
    stage: Stage

    def apply(self) -> None:
        """Give objects of frameworks, known and new ones, what they are now."""
        if not self.stage.scratch and not self.pairs:
            return
        for framework in frameworks.active():
            own = [pair for pair in self.pairs if frameworks.of(type(pair[0])) is framework]
            framework.apply(own, self.stage)


@dataclass
class Staging:
    """One shipment on its way into a namespace."""

    ns: dict[str, Any]
    registry: Registry
    groups: list[Arrived]
    units: dict[str, Any] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    codes: dict[str, types.CodeType] = field(default_factory=dict)
    loaded: dict[int, Loaded] = field(default_factory=dict)
    failed: dict[int, LoadError] = field(default_factory=dict)
    #: Whether nothing that is here already is met, but what others refer to: for a look only.
    apart: bool = False
    #: What this side's modules hold by name.
    own: OwnObjects | None = None
    #: How far the group that is being loaded is.
    stage: Stage = field(init=False)

    def __post_init__(self) -> None:
        self._home: dict[str, int] = {}
        for index, group in enumerate(self.groups):
            for oid in group.skeletons:
                self._home[oid] = index
        self._loading: set[int] = set()
        self._stack: list[int] = []
        self._refers: dict[int, set[str]] = {}
        self._held: list[tuple[str, types.FunctionType, int]] = []
        self._filled: set[str] = set()
        self.tokens = {
            "unit": self.unit,
            "namespace": lambda: self.ns,
            "module": self._module,
        }

    def load(self) -> None:
        """Load every group; ``loaded`` and ``failed`` say how each ended."""
        with hushed():
            for index in range(len(self.groups)):
                self._load(index)
        self._spread_failures()

    def _load(self, index: int) -> None:
        if index in self.loaded or index in self.failed or index in self._loading:
            return
        self._loading.add(index)
        self._stack.append(index)
        group = self.groups[index]
        outer = getattr(self, "stage", None)
        known = Registry(self.registry.side) if self.apart else self.registry
        self.stage = stage = Stage(known, _lack, frozenset(group.risen))
        try:
            for oid in group.skeletons:
                self.unit(oid)
            before = stayed.asked()
            with _hidden(self.ns, group.hidden):
                payload = _Unpickler(group.inband, self, group.buffers).load()
            if stayed.asked() != before:  # and the value's own code went on without an answer
                raise LoadError("it asks for what stayed on the other side while it is loaded")
            names, contents, pairs = payload
            frameworks.refresh()
            self.loaded[index] = Loaded(group, names, contents, pairs, stage)
            self._fill(index)
        except LoadError as error:
            self.failed[index] = error.with_traceback(None)
        except Exception as error:  # noqa: BLE001 - whatever a value's own code raises
            text = str(error).strip().splitlines()
            reason = f"{type(error).__name__}: {text[0][:200] if text else ''}"
            told = f"it does not load on the other side ({reason})"
            missing = (error.name or "") if isinstance(error, NameError) else ""
            self.failed[index] = LoadError(told, culprit=self._culprit(group), missing=missing)
        finally:
            if outer is not None:
                self.stage = outer
            self._loading.discard(index)
            self._stack.pop()

    def _culprit(self, group: Arrived) -> Culprit | None:
        """Return what of a group does not load at home: a companion can send it sealed."""
        if self.registry.side != "h":
            return None
        self.stage = Stage(self.registry, _lack)  # what it plans is never carried out
        for data in (group.inband, *group.skeletons.values()):
            own = _Unpickler(b"", self, [])
            found = find_culprit(data, group.buffers, own.find_class, own.persistent_load)
            if found is not None:
                return found
        return None

    def contents(self, loaded: Loaded) -> list[tuple[str, Any]]:
        """Return contents by unit, those of classes last: a framework may look into a class."""
        return sorted(
            loaded.contents.items(), key=lambda each: isinstance(self.units[each[0]], type)
        )

    def objects(self, loaded: Loaded) -> dict[str, Any]:
        """Return what a group brought with an id; not what functions have as their globals."""
        return {
            oid: self.units[oid]
            for oid, content in loaded.contents.items()
            if type(content) is not tuple or type(content[0]) is not str
        }

    def _fill(self, index: int) -> None:
        """Give units that nobody can see yet their content, so that later loads can use them."""
        for oid, content in self.contents(self.loaded[index]):
            if oid in self.fresh and oid not in self._filled:
                self._filled.add(oid)
                apply_content(self.units[oid], content, None)

    def _spread_failures(self) -> None:
        """A group that refers to a new unit whose own group failed has failed too."""
        again = True
        while again:
            again = False
            for index in list(self.loaded):
                for oid in self._refers.get(index, ()):
                    home = self._home.get(oid)
                    if oid in self.fresh and home in self.failed:
                        self.failed[index] = self.failed[home]
                        del self.loaded[index]
                        again = True
                        break

    def release(self) -> None:
        """Let go of every value: nothing of a staging outlives it, collector or not."""
        for loaded in self.loaded.values():
            loaded.stage.scratch.clear()
            loaded.stage.made.clear()
        for table in (self.tokens, self.units, self.loaded, self.failed, self.codes):
            table.clear()
        self._held.clear()
        self.groups = []

    # ---- references

    def persistent(self, pid: tuple[Any, ...]) -> Any:  # noqa: PLR0911 - one line a kind
        """Resolve a reference that an exact builtin type needed."""
        kind = pid[0]
        if kind == "namespace":
            return self.ns
        if kind == "attributes":
            return vars(pid[1])
        if kind == "constant":
            return constants.find(pid[1])
        if kind == "nan":
            if pid[1] == "math":
                return math.nan
            if pid[1] == "numpy":
                return importlib.import_module("numpy").nan
            value = self.units.get(pid[1]) or self.registry.get(pid[1])
            if value is None:
                value = self.units[pid[1]] = float("nan")
                self.fresh.add(pid[1])
            return value
        return self.unit(pid[1])

    def unit(self, oid: str) -> Any:
        """Return the live or staged unit ``oid``; raises LoadError when nobody sent it."""
        self._refer(oid)
        if oid in self.units:
            return self.units[oid]
        live = self.registry.get(oid)
        index = self._home.get(oid)
        if live is not None:
            self.units[oid] = live
            if index is not None:
                self._note_code(oid, self._skeleton(oid))
            return live
        skeleton = self._skeleton(oid) if index is not None else ()
        if self.own is not None:
            self.own.bring(oid)
            if (live := self.registry.get(oid)) is not None:
                self.units[oid] = live
                return live
        if index is None:
            raise LoadError("something it refers to is missing", frozenset({oid}))
        made = self._make(oid, skeleton)
        self._load(index)
        if isinstance(made, types.FunctionType):
            for cell, function, _ in list(self._held):
                if function is made and cell in self._home:
                    self._load(self._home[cell])
        return made

    def _refer(self, oid: str) -> None:
        if self._stack:
            self._refers.setdefault(self._stack[-1], set()).add(oid)

    def _skeleton(self, oid: str) -> tuple[Any, ...]:
        data = self.groups[self._home[oid]].skeletons[oid]
        skeleton: tuple[Any, ...] = _Unpickler(data, self, []).load()
        return skeleton

    def _note_code(self, oid: str, skeleton: tuple[Any, ...]) -> None:
        if skeleton[0] == "function":
            kind, where, digest = skeleton[2]
            if kind == "module":
                self._module(where, digest)
            self.codes[oid] = skeleton[1]

    def _make(self, oid: str, skeleton: tuple[Any, ...]) -> Any:
        if oid in self.units:  # made while its skeleton loaded
            return self.units[oid]
        kind, *args = skeleton
        if kind == "function":
            made: Any = self._function(oid, *args)
        elif kind == "class":
            made = classes.make(*args)
        elif kind == "enum":
            made = enums.make(*args)
        elif kind == "stayed":
            made = stayed.make(oid, self.registry.side, *args)
        elif kind == "free":
            made = locks.make(*args)
        else:
            made = _make_plain(kind, args)
        self.units[oid] = made
        self.fresh.add(oid)
        return made

    def _function(
        self,
        _oid: str,
        code: types.CodeType,
        space: tuple[str, str, str],
        cells: tuple[str, ...],
    ) -> types.FunctionType:
        closure = tuple(self._cell(cell) for cell in cells)
        kind, where, digest = space
        if kind == "ns":
            scope = self.ns
        elif kind == "module":
            scope = self._module(where, digest).__dict__
        else:
            live = self.units.get(where)
            scope = live if live is not None else self.registry.get(where)
            self._refer(where)
            if scope is None:
                if where not in self._home:
                    raise LoadError("something it refers to is missing", frozenset({where}))
                scope = self.units[where] = {}
                self.fresh.add(where)
        made = types.FunctionType(code, scope, code.co_name, None, closure or None)
        self._held += [(cell, made, index) for index, cell in enumerate(cells)]
        if kind == "unit":
            self._held.append((where, made, GLOBALS_SLOT))
        return made

    def _cell(self, oid: str) -> types.CellType:
        self._refer(oid)
        cell = self.units.get(oid)
        if cell is None:
            cell = self.registry.get(oid)
        if cell is None:
            if oid not in self._home:
                raise LoadError("something it refers to is missing", frozenset({oid}))
            cell = types.CellType()
            self.fresh.add(oid)
        self.units[oid] = cell
        assert isinstance(cell, types.CellType)
        return cell

    def _module(self, name: str, digest: str) -> types.ModuleType:
        module = sys.modules.get(name) or importlib.import_module(name)
        if digest and not is_alike(name, digest):
            raise LoadError(
                f"its module {name} was loaded from another version of its file on the other side: "
                f"run importlib.reload({name}) where the older one is, or %gpu restart"
            )
        return module

    def adopt(self) -> None:
        """Enter the staged units into the registry: they are live from now on."""
        for loaded in self.loaded.values():
            loaded.stage.adopt()
        held = {oid for oid, _, _ in self._held}
        for oid, function, slot in self._held:
            self.registry.bind_held(oid, function, slot)
        for oid in self.fresh - held:
            self.registry.bind(oid, self.units[oid])


def _lack(oid: str) -> LoadError:
    return LoadError("memory that it shows is missing", frozenset({oid}))


def _make_plain(kind: str, args: list[Any]) -> Any:
    builtin = {"list": list, "dict": dict, "set": set, "bytearray": bytearray, "object": object}
    if kind in builtin:
        return builtin[kind]()
    if kind == "cell":
        return types.CellType()
    if kind == "array":
        return arrays_in_place.make(*args)
    if kind == "view":
        return args[0](*args[1])
    if kind == "instance":
        return object.__new__(args[0])
    if kind == "container":
        return containers.make(*args)
    raise LoadError(f"an unknown kind of unit ({kind})")
