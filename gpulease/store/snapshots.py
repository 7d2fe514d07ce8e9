"""The form in which a plan is kept: its snapshot, as far as it differs from the one before it.

A snapshot is taken apart into parts, each under its section and key.  A whole one names all of its
parts; a difference those that changed and those that are gone.  What was kept is the very snapshot
again, so that ``plan`` makes the same of it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from gpulease.policy.calendar.reservation import Window
from gpulease.policy.model import (
    Action,
    Alert,
    Bound,
    Device,
    Evidence,
    Lease,
    Observed,
    PolicyDocument,
    Snapshot,
)

#: The members of a snapshot but its instant, each with the type of its parts.
SECTIONS: Mapping[str, Any] = {
    "policy": PolicyDocument,
    "devices": Device,
    "leases": Lease,
    "evidence": Evidence,
    "observed": Observed,
    "windows": Window,
    "contended": tuple[datetime, ...],
    "bounds": tuple[str, Decimal, tuple[tuple[str, str, dict[int, Decimal]], ...]],
    "preferred_nodes": str,
    "use": float,
    "spent": float,
    "capacity_known": bool,
    "typical_length": float | None,
    "away": tuple[datetime, datetime] | None,
    "wait_spread": tuple[float, float] | None,
    "several_nodes": bool,
    "grows": bool,
}
_SINGLE = (
    "policy", "capacity_known", "typical_length", "away", "wait_spread", "several_nodes", "grows",
)  # fmt: skip
_BY_NAME = ("evidence", "observed", "contended", "preferred_nodes")
_BY_NAMES = ("use", "spent")
_ACTIONS: Mapping[str, Any] = {
    kind.__name__: kind for kind in Action.__subclasses__() if kind is not Alert
}


@cache  # made when one is needed first: all of them take 50 ms, and every start would wait
def _form(of: Any) -> TypeAdapter[Any]:
    return TypeAdapter(of)


@dataclass(frozen=True)
class Kept:
    """A plan that was kept: what it was made from, and its actions but for alerts."""

    snapshot: Snapshot
    actions: tuple[Action, ...]


def _parts(section: str, found: Any) -> Mapping[tuple[str, ...], Any]:
    """Return the parts of one section by their keys; ``found``: the snapshot's member."""
    if section in _SINGLE:
        return {(): found}
    if section == "devices":
        return {(each.uuid,): each for each in found}
    if section == "leases":
        return {(each.id,): each for each in found}
    if section == "windows":  # whose pool does not count when two are compared
        return {each.key: (each, each.pool) for each in found}
    if section == "bounds":
        return {(str(number),): each for number, each in enumerate(found)}
    return {key if section in _BY_NAMES else (key,): value for key, value in found.items()}


def packed(before: Snapshot | None, after: Snapshot, actions: Iterable[Action]) -> bytes:
    """Return a plan as bytes: the whole snapshot if there is none before, else the difference."""
    changed: list[list[Any]] = []
    gone: list[list[str]] = []
    for section in SECTIONS:
        known: Mapping[tuple[str, ...], Any] = {}
        new = getattr(after, section)
        if before is not None:
            old = getattr(before, section)
            if old is new:
                continue
            if section in ("devices", "leases"):  # thousands: the very same are left out
                both = set(map(id, old)) & set(map(id, new))
                old, new = ([each for each in some if id(each) not in both] for some in (old, new))
            known = _parts(section, old)
        parts = _parts(section, new)
        changed += [
            [section, *key, _plain(section, value)]
            for key, value in parts.items()
            if key not in known or not _same(known[key], value)
        ]
        gone += [[section, *key] for key in known if key not in parts]
    taken = [
        [type(each).__name__, _form(_ACTIONS[type(each).__name__]).dump_python(each, mode="json")]
        for each in actions
        if not isinstance(each, Alert)
    ]
    now = _form(datetime).dump_python(after.now, mode="json")
    return pack({"now": now, "changed": changed, "gone": gone, "actions": taken})


def pack(row: Mapping[str, Any]) -> bytes:
    """Return one plan's JSON values as bytes."""
    return zlib.compress(json.dumps(row, separators=(",", ":")).encode())


def unpack(body: bytes) -> dict[str, Any]:
    """Return what ``pack`` was given."""
    found: dict[str, Any] = json.loads(zlib.decompress(body))
    return found


class Reader:
    """Puts snapshots together again; read one after the other, beginning with a whole one."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, ...], Any] = {}
        self._row: dict[str, Any] = {}

    def read(self, body: bytes, *, whole: bool) -> None:
        """Read the next plan."""
        if whole:
            self._parts.clear()
        self._row = unpack(body)
        for key in self._row["gone"]:
            del self._parts[tuple(key)]
        self._parts.update((tuple(key), value) for *key, value in self._row["changed"])

    @property
    def kept(self) -> Kept:
        """The plan that was read last."""
        found: dict[str, dict[tuple[str, ...], Any]] = {}
        for (section, *key), value in self._parts.items():
            found.setdefault(section, {})[tuple(key)] = _typed(section, value)
        single: dict[str, Any] = {name: found[name][()] for name in _SINGLE}
        named: dict[str, Any] = {
            name: {key[0]: value for key, value in found.get(name, {}).items()} for name in _BY_NAME
        }
        pairs: dict[str, Any] = {name: found.get(name, {}) for name in _BY_NAMES}
        snapshot = Snapshot(
            now=_form(datetime).validate_python(self._row["now"]),
            devices=tuple(found.get("devices", {}).values()),
            leases=tuple(found.get("leases", {}).values()),
            windows=tuple(found.get("windows", {}).values()),
            bounds=tuple(found.get("bounds", {}).values()),
            **single,
            **named,
            **pairs,
        )
        return Kept(snapshot, _actions(self._row["actions"]))


def _same(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)


def _plain(section: str, value: Any) -> Any:
    if isinstance(value, Bound):
        takes = tuple((*key, amounts) for key, amounts in value.takes.items())
        value = (value.detail, value.left, takes)
    elif section == "windows":
        value = value[0]
    return _form(SECTIONS[section]).dump_python(value, mode="json")


def _typed(section: str, value: Any) -> Any:
    found = _form(SECTIONS[section]).validate_python(value)
    if section != "bounds":
        return found
    detail, left, takes = found
    return Bound(detail, left, {(request, name): amounts for request, name, amounts in takes})


def _actions(taken: Sequence[Any]) -> tuple[Action, ...]:
    return tuple(_form(_ACTIONS[kind]).validate_python(members) for kind, members in taken)
