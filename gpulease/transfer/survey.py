"""Which components there are: what roots share, found while they are packed.

One pickler of C for each root; its memo holds the objects that it met.  Roots whose memos share an
object that can change are packed again, together.  All picklers live until the end: the address of
something that was made for one would else be another's.
"""

from __future__ import annotations

import argparse
import gc
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

from . import classes, in_place, lasting, stayed, ways
from .groups import (
    MANY,
    TOO_DEEP,
    Asked,
    Component,
    Deep,
    LeadsError,
    Preamble,
    Probe,
    ToldApart,
    Writing,
    joined,
)
from .memory import EXPORTERS, shows_memory
from .met import Met
from .pickler import Pickler, StandsIn
from .refuse import LimitedBuffers, LimitedFile, RefusedError

#: A float that is no number: the usual one, or another that is not within a negative integer.
_NAN = re.compile(
    rb"G[\x7f\xff](?:\xf8\0{6}|(?<!J..)(?<!J...)(?:[\xf1-\xff]|\xf0(?!\0{6})))", re.DOTALL
)


class Survey:
    """One look at all roots."""

    def __init__(self, met: Met, values: dict[str, Any], known: Mapping[str, Any]) -> None:
        self.met = met
        #: Roots: "n:" and a name, "c:" and a class's id, "p:" and a pin of the other side's.
        self.values = values
        self.known = known
        self._preamble = Preamble(known)
        self._settings = lasting.settings()
        self._picklers: list[Any] = []
        self._told_apart = ToldApart(met.named)
        self.components: list[Component] = []
        #: Roots of which the value stays here, and something travels that stands for it.
        self._standing: set[str] = set()
        #: Large components, while groups are packed for the first time.
        self._large: list[Component] = []

    def run(self, lone: Mapping[str, Any]) -> None:
        """Find all components; ``lone`` are roots where nothing else leads to their object."""
        ways.open_rooms()
        packed: dict[frozenset[str], Component] = {}
        groups = self._first_packed(packed)
        while True:
            for group in groups:
                if group not in packed:
                    packed[group] = self._joined(group, packed)
            groups, more = self._more_classes(groups)
            merged = None if more else joined([packed[group] for group in groups])
            if merged is not None:
                groups, more = merged, True
            more = more or self._cross(groups, packed) or self._pack_again(groups, packed)
            more = more or self._add_lone(groups, packed, lone)
            if not more:
                break
        self.components = [packed[group] for group in groups]
        self._picklers.clear()
        for component in self.components:
            component.writes = None
        self._told_apart.named = frozenset(self.met.named)
        self.met.named.clear()

    def _first_groups(self) -> list[frozenset[str]]:
        same: dict[int, set[str]] = {}
        for root, value in self.values.items():
            key = id(value) if self._told_apart.can_change(value) else -1 - len(same)
            same.setdefault(key, set()).add(root)
        return list(map(frozenset, same.values()))

    def _first_packed(self, packed: dict[frozenset[str], Component]) -> list[frozenset[str]]:
        """Pack each group, or what leads into a large component together with that.

        Each part of a figure leads to all of it: it would be packed once for every variable.
        """
        after: dict[frozenset[str], list[frozenset[str]]] = {}
        for group in sorted(self._first_groups(), key=min):
            try:
                component = packed[group] = self.pack(group)
            except LeadsError as error:
                after[error.args[0].roots].append(group)
                continue
            if len(component.members) > MANY:
                self._large.append(component)
                after[group] = []
        alone = [group for groups in after.values() for group in groups if self._is_refused(group)]
        large = self._large.copy()
        self._large.clear()
        for whole in large:
            beside = [group for group in after[whole.roots] if group not in alone]
            more = frozenset[str]().union(*beside)
            if not more:
                continue
            longer = self._extended([whole], sorted(more), is_met=False) if whole.writes else None
            longer = longer or self.pack(whole.roots | more)
            if longer.error is None:
                packed[longer.roots] = longer
                del packed[whole.roots]
            else:
                alone += beside
        packed |= {group: self.pack(group) for group in alone}
        return list(packed)

    def _is_refused(self, group: frozenset[str]) -> bool:
        """Say whether something is refused that a group alone leads to, or may be."""
        self._picklers.append(probe := Probe(io.BytesIO(), [], self.met))
        probe.others, probe.goes_on = self._large, True
        try:
            probe.dump(self.values[min(group)])
        except Exception:  # noqa: BLE001 - it is packed then, which says why
            return True
        return False

    def _joined(self, roots: frozenset[str], packed: dict[frozenset[str], Component]) -> Component:
        """Pack roots together: the small parts are written after the largest, where that can be."""
        below = [each for each in packed.values() if each.roots < roots]
        parts = [part for part in below if not any(part.roots < each.roots for each in below)]
        parts.sort(key=lambda each: (-len(each.members), each.order))
        if not parts or frozenset().union(*(each.roots for each in parts)) != roots:
            return self.pack(roots)
        more = sorted(roots - parts[0].roots)
        if any(each.writes is None for each in parts) or any(root[0] == "c" for root in more):
            return self.pack(roots)
        for part in parts:
            del packed[part.roots]
        return self._extended(parts, more) or self.pack(roots)

    def _extended(
        self, parts: list[Component], more: list[str], *, is_met: bool = True
    ) -> Component | None:
        """Write more roots after those of the first part; None where that gives another stream.

        ``is_met``: all that these lead to is in one of the parts.
        """
        base = parts[0]
        if any(each.settings.keys() - base.settings.keys() for each in parts):
            return None
        writes, base.writes = base.writes, None
        assert writes is not None
        component = Component(base.roots.union(more), order=(*base.order, *more), writes=writes)
        component.settings = base.settings
        component.classes = frozenset().union(*(each.classes for each in parts))
        before = self.met.met_classes.copy()
        try:
            for root in more:
                writes.pickler.dump(self.values[root])
        except Exception:  # noqa: BLE001 - it is packed as a whole then, which says why
            return None
        component.told_apart = self._told_apart
        if is_met:
            self._join_members(component, parts)
            component.written(writes)
        else:
            self._note(component, writes, {})
            component.classes |= self.met.met_classes - before
            met = component.members.keys()
            new = {self._settings[key] for key in self._settings.keys() & met}
            refused = not self.met.refused.keys().isdisjoint(met)
            if new - base.settings.keys() or refused or _may_hold_told_by_is(component.stream):
                return None
        component.kept_spaces = frozenset(writes.pickler.kept_spaces)
        return None if self._spaces(component, writes.pickler) else component

    def _join_members(self, component: Component, parts: list[Component]) -> None:
        """Note what was met: a look at the memo would cost as much as packing."""
        base = parts[0]
        component.members, component.objects = base.members, base.objects
        component.kinds = set().union(*(each.kinds for each in parts))
        for part in parts[1:]:
            for key in part.members.keys() - component.members.keys():
                obj = part.members[key][1]
                component.members[key] = None, obj
                component.objects.append(obj)

    def _spaces(self, component: Component, pickler: Pickler) -> dict[int, Any]:
        """Return dictionaries that belong to an object for good and have another name, too."""
        kept = pickler.kept_spaces
        return {key: owner for key, owner in kept.items() if key in component.members}

    def _more_classes(self, groups: list[frozenset[str]]) -> tuple[list[frozenset[str]], bool]:
        known = {root[2:] for group in groups for root in group if root[0] == "c"}
        new = self.met.met_classes - known
        return groups + [frozenset(["c:" + oid]) for oid in sorted(new)], bool(new)

    def _cross(self, groups: list[frozenset[str]], packed: dict[frozenset[str], Component]) -> bool:
        """Pack what holds frames and images again where their memory is an array's, too."""
        if not self.met.memory.crossing(_exporters(groups, packed)):
            return False
        for group in list(packed):
            if any(map(shows_memory, packed[group].kinds)):
                del packed[group]
        return True

    def _pack_again(self, groups: list[frozenset[str]],
                    packed: dict[frozenset[str], Component]) -> bool:  # fmt: skip
        """Pack groups again of which a library found out more since: what shares memory, say."""
        looks = (look(self.met, _exporters(groups, packed)) for look in ways.after_packing)
        stale = set[int]().union(*looks)
        again = [group for group in groups if not stale.isdisjoint(packed[group].members)]
        for group in again:
            del packed[group]
        return bool(again)

    def _add_lone(self, groups: list[frozenset[str]], packed: dict[frozenset[str], Component],
                  lone: Mapping[str, Any]) -> bool:  # fmt: skip
        new = {
            root: obj
            for root, obj in lone.items()
            if root not in self.values and not any(packed[each].has(id(obj)) for each in groups)
        }
        self.values.update(new)
        groups += [frozenset([root]) for root in new]
        return bool(new)

    def pack(self, roots: frozenset[str], pinned: Mapping[str, Any] | None = None) -> Component:
        """Pack roots together; ``pinned`` are objects that the receiver has, with new contents."""
        component = Component(roots, order=tuple(sorted(roots)))
        pinned = pinned or {}
        classes_before, self.met.met_classes = self.met.met_classes, set()
        try:
            try:
                self._pack(component, Probe if self._large else Pickler, pinned)
                if met := self._settings.keys() & component.members.keys():
                    found = {self._settings[key]: component.members[key][1] for key in met}
                    component.settings = dict(sorted(found.items()))
                    self._pack(component, Pickler, pinned)
                if component.spaces or _may_hold_told_by_is(component.stream):
                    self._pack(component, Asked, pinned)
            except RecursionError:
                self._pack(component, Deep, pinned)
            for key in self.met.refused.keys() & component.members.keys():
                raise RefusedError(self.met.refused[key])
        except LeadsError:
            self.met.met_classes |= classes_before
            raise
        except RefusedError as error:
            # One without a traceback, whose frames would keep what a cell deletes.
            component = Component(roots, error=RefusedError(error.kind, error.blocker))
        except RecursionError:
            component = Component(roots, error=RefusedError(TOO_DEEP))
        except Exception as error:  # noqa: BLE001 - a value's own way of being pickled
            kind = type(error).__name__
            component = Component(
                roots, error=RefusedError(f"it cannot be packed ({kind}: {error})")
            )
        component.classes = frozenset(self.met.met_classes)
        self.met.met_classes |= classes_before
        # A module cannot be without what it holds: a name of the notebook can.
        if component.error is not None and any(r[0] == "m" for r in roots - self._standing):
            self._standing |= roots
            return self.pack(roots, pinned)
        return component

    def _value(self, root: str) -> Any:
        value = self.values[root]
        return StandsIn(value) if root in self._standing else value

    def _pack(self, component: Component, kind: type[Pickler], pinned: Mapping[str, Any]) -> None:
        limit = self.met.limit
        out = io.BytesIO() if limit is None else LimitedFile(limit)
        buffers = list[Any]() if limit is None else LimitedBuffers(limit)
        pickler = kind(out, buffers, self.met)
        if isinstance(pickler, Probe):
            pickler.others = self._large
        self._picklers.append(pickler)
        start = self._preamble
        if pinned or component.settings:
            pins = {"p:" + pin: obj for pin, obj in pinned.items()}
            start = Preamble({**self.known, **component.settings, **pins})
        pickler.memo = dict(start.memo)
        pickler.spaces = component.spaces
        if isinstance(pickler, Deep):
            held = map(in_place.content_of, pinned.values())
            pickler.lay_out([self.values[r] for r in component.roots if r[0] != "c"] + [*held])
            pickler.dump_flat()
            component.deep = len(pickler.order)
        self._dump(component, pickler, pinned)
        writing = Writing(pickler, out, buffers, start)
        self._note(component, writing, pinned)
        component.kept_spaces = frozenset(pickler.kept_spaces)
        component.told_apart = self._told_apart
        component.writes = writing if kind in (Pickler, Probe) and not pinned else None

    def _dump(self, component: Component, pickler: Pickler, pinned: Mapping[str, Any]) -> None:
        """Write the roots, and new contents of what is pinned."""
        for root in component.order:
            if root[0] == "c":
                cls: Any = self.met.classes.get(root[2:])
                self.met.note_class_space(cls)
                for part in classes.parts_of(cls):
                    pickler.dump(part)
            elif root[0] != "p" or not pinned:
                pickler.dump(self._value(root))
        for obj in pinned.values():
            pickler.note_space(obj)
            pickler.dump(in_place.content_of(obj))
        component.filled = tuple(pinned)

    def _note(self, component: Component, writing: Writing, pinned: Mapping[str, Any]) -> None:
        """Note what was written, and what was met; only ids are kept of the memo."""
        pickler = writing.pickler
        component.written(writing)
        members: dict[int, tuple[int | None, Any]] = pickler.memo.copy()
        component.members = members
        component.spaces |= self._spaces(component, pickler)
        for key in writing.start.memo:
            del members[key]
        for obj in pinned.values():
            members[id(obj)] = writing.start.memo[id(obj)]
        for key, owner in component.spaces.items():
            members.setdefault(key, (None, vars(owner)))
        if isinstance(pickler, Deep):
            members |= {id(obj): (-1 - place, obj) for place, obj in enumerate(pickler.order)}
        component.objects = list(map(itemgetter(1), members.values()))
        component.kinds = set(map(type, component.objects))


def _may_hold_told_by_is(stream: bytes) -> bool:
    """Look for NaNs, each of which is itself only, and for the string that argparse tells by it."""
    nan = (b"G\x7f" in stream or b"G\xff" in stream) and _NAN.search(stream) is not None
    return nan or argparse.SUPPRESS.encode() in stream


def _exporters(groups: list[frozenset[str]],
               packed: Mapping[frozenset[str], Component]) -> Iterator[Any]:  # fmt: skip
    """Yield buffers that arrays may be over."""
    return (obj for group in groups for obj in packed[group].of_kinds(EXPORTERS))


def spread_refusals(components: list[Component],
                     space: Mapping[str, Any]) -> dict[frozenset[str], str]:  # fmt: skip
    """Return why components stay: what is refused in them, or in a class that they are of."""
    refused = {each.roots: _located(each, space) for each in components if each.error is not None}
    bad = {root[2:]: why for roots, why in refused.items() for root in roots if root[0] == "c"}
    for each in components:
        for oid in each.classes & bad.keys():
            refused.setdefault(each.roots, bad[oid])
    return refused


def _located(component: Component, space: Mapping[str, Any]) -> str:
    """Return what is refused in a component, with the way to it."""
    error = component.error
    assert error is not None
    values = {name: space[name] for name in component.names if name in space}
    return stayed.located(error.kind, values, error.blocker)


@contextmanager
def collector_waits() -> Iterator[None]:
    """Keep the collector from running: what it frees would give its address to another object."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
