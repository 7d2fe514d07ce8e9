"""What the GPU's side let go of, and something at home outside of the names still holds.

A cell may have changed it before.  Where that could not come home (see ``values.loans`` for what
could), the person is told by name.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gpulease.sides.names.analysis import Use
from gpulease.transfer.values.groups import name_root
from gpulease.transfer.values.kinds.units import can_pin
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import Note

from .held_parts import held_parts
from .stale_references import NOBODY, borrowed_of, called, held, holder, may_be_held


def handled(side: Side, use: Use, names: Collection[str]) -> bool:
    """Say whether a cell may have changed what these names led to, before it let go of it."""
    if use.unbounded or not (use.handled & use.strict).isdisjoint(names):
        return True
    others = use.reads.difference(names)
    survey = side.survey(others)
    roots = side.closure(others, survey, reads=True)  # its functions may have
    return not roots.isdisjoint(map(name_root, names)) or any(g.unbounded for g in survey.groups)


def let_go_notes(
    side: Side, use: Use, gone: Mapping[str, Collection[str]], aside: Mapping[str, Any]
) -> list[Note]:
    """Return a note for each of the names that led to what is ``gone`` there and held here."""
    registry = side.registry
    live = {oid: registry.get(oid) for oid in gone}
    live = {oid: live[oid] for oid in live if live[oid] is not None and can_pin(live[oid])}
    ours = borrowed_of(live, registry)
    found = {n: oid for oid in held(live, side.ns, ours, aside) for n in sorted(gone[oid])[:1]}
    found = {name: oid for name, oid in found.items() if handled(side, use, gone[oid])}
    who = {oid: holder(live, oid, registry.borrowed.objects, aside) for oid in found.values()}
    return _notes(side, {name: live[oid] for name, oid in found.items()}, lambda n: who[found[n]])


def replaced_notes(
    side: Side, use: Use, olds: Mapping[str, Any], names: set[str], aside: Mapping[str, Any]
) -> list[Note]:
    """Return a note for each of these names that a GPU cell deleted or bound anew.

    ``olds`` are older values here, ``aside`` those of variables whose newer ones are still to
    come; what has an id is ``let_go_notes``'s.
    """
    bare = {n for n in names & olds.keys() if may_be_held(olds, n)}
    bare = {n for n in bare if side.registry.find(olds[n]) is None or not can_pin(olds[n])}
    if not bare:
        return []
    ours = borrowed_of(olds, side.registry)
    found = {n for n in held(olds, side.ns, ours, aside) if n in bare and handled(side, use, [n])}
    if not found:
        return []
    gc.collect()  # what looks like a holder may be garbage
    found.intersection_update(held(olds, side.ns, ours, aside))
    own = side.registry.borrowed.objects, aside
    who = {name: holder(olds, name, *own) for name in found}
    return _notes(side, {name: olds[name] for name in found}, who.__getitem__)


def part_notes(
    side: Side,
    use: Use,
    olds: Mapping[str, Any],
    names: set[str],
    before: dict[str, dict[int, Any]],
    *,
    aside: Mapping[str, Any],
) -> list[Note]:
    """Return a note for each name of which a part of the older value is held; see above."""
    parts = held_parts(olds, side.ns, before, aside)
    found = {n: parts[n] for n in parts if side.registry.find(parts[n]) is None}
    for name in names & found.keys():
        if not handled(side, use, [name]):
            del found[name]
    who = {name: holder(found, name, parts, aside) for name in found}
    return _notes(side, found, who.__getitem__)


def _notes(side: Side, found: Mapping[str, Any], who: Callable[[str], str]) -> list[Note]:
    """Say it, but for what a variable leads to."""
    inside = set().union(*(group.inner for group in side.survey().groups)) if found else set()
    return [
        _note(name, called(found[name]), who(name))
        for name in sorted(found)
        if id(found[name]) not in inside and who(name) != NOBODY
    ]


def _note(name: str, what: str, who: str) -> Note:
    sentence = (
        f"{name} led to {what} that {who} outside of your variables still holds here, as it was "
        f"before the GPU cell: what the cell changed in it is not seen there. Give it {name} again "
        f"where it matters."
    )
    return Note("kept_old_object", sentence, (name,))
