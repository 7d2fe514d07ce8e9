"""Which groups changed since both sides agreed on them, and which small ones travel unasked.

Owns what is known while one shipment is planned (``Look``), verification against the own baseline
and the eager budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpulease.transfer.values.groups import Check, Group, Survey, merge
from gpulease.transfer.values.packing.ledger import Base
from gpulease.transfer.values.packing.pickling import Packed
from gpulease.transfer.values.pins import is_newly_held, is_unknown_there, refuse_kept
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.messages import cannot_move
from gpulease.transfer_next.refuse import RefusedError

#: What an object costs beside a byte, to look at the cheap first.
_AN_OBJECT = 100


@dataclass
class Look:
    """One shipment in the making: sets hold ``id``s of groups."""

    side: Side
    survey: Survey
    check: Check
    same: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    packed: dict[int, Packed] = field(default_factory=dict)
    chosen: set[int] = field(default_factory=set)
    required: set[int] = field(default_factory=set)
    soft: set[int] = field(default_factory=set)
    joint: dict[int, bool] = field(default_factory=dict)
    withheld: set[int] = field(default_factory=set)
    #: Group -> why it stays here for want of a unit, where that is known.
    stays: dict[int, str] = field(default_factory=dict)
    #: Names that code may read outside of cells (a callback, a thread): they are never withheld.
    in_use: set[str] | None = None
    #: Bytes that may travel unasked for, where that is bounded, and those that do.
    room: int | None = None
    sent: int = 0
    #: What was looked at unasked for: bytes, objects.
    size: int = 0
    objects: int = 0

    def group_of_unit(self, oid: str) -> Group | None:
        """Return the group that has a unit's content, if one was found."""
        return self.survey.by_root.get("u:" + oid)


def verify(state: Look, group: Group, strict: str | None) -> None:
    """Pack the group, unless that was done; refuse where it is strictly wanted."""
    if id(group) in state.packed or id(group) in state.same:
        return
    state.check()
    side = state.side
    try:
        if state.survey.held.leaves:
            refuse_kept(side, group, state.survey)
        packed = side.pack(group, state.survey, state.check)
    except RefusedError as error:
        state.stays[id(group)] = error.kind  # of a unit without a name, too
        side.ledger.blocked.update(dict.fromkeys(group.names, error.kind))
        if strict is not None:
            raise cannot_move(strict, error.kind, side.place) from error
        return
    for name in group.names:
        side.ledger.blocked.pop(name, None)
    state.packed[id(group)] = packed
    base = side.ledger.common(group)
    if base is None or id(group) in state.changed:
        return
    if base.roots == group.key:
        if side.unchanged(group, state.survey, packed, base):
            state.same.add(id(group))
    elif group.key < base.roots and _joint(state, base):
        state.same.add(id(group))


def _joint(state: Look, base: Base) -> bool:
    """Say whether the roots of an agreement, taken together, are as they were."""
    known = state.joint.get(id(base))
    if known is not None:
        return known
    groups = {id(g): g for r in base.roots if (g := state.survey.by_root.get(r)) is not None}
    same = False
    if groups and {root for g in groups.values() for root in g.roots} == base.roots:
        try:
            merged = merge(groups.values())
            packed = state.side.packer.pack(merged, state.survey.units, state.survey.used_globals)
            same = state.side.unchanged(merged, state.survey, packed, base)
        except RefusedError:
            same = False
    state.joint[id(base)] = same
    return same


def look_at_rest(state: Look, eager: bool) -> None:
    """Look at what nobody asked for, in rising order of cost: what is small travels if it changed.

    Past the budget, what the receiver has not got waits; what it holds is looked at all the same,
    unless it can be withheld.
    """
    side, settings = state.side, state.side.settings
    taken = state.soft | state.required
    rest = [
        (group, _known(state, group)) for group in state.survey.groups if id(group) not in taken
    ]
    rest = [(g, held) for g, held in rest if held or (eager and _may_be_small(side, g))]
    rest.sort(key=lambda each: (_cost(side, each[0]), each[0].roots))
    for group, held in rest:
        over = state.size > settings.eager_bytes or state.objects > settings.eager_objects
        if not held and over:
            continue
        if held and (over or not side.ledger.is_small(group, settings)) and _may_wait(state, group):
            state.withheld.add(id(group))
            continue
        if _is_many(state, group):
            continue
        verify(state, group, None)
        packed = state.packed.get(id(group))
        if packed is None:
            continue
        state.objects += group.objects
        if not side.ledger.is_small(group, settings):
            continue
        state.size += packed.nbytes
        fits = state.room is None or state.sent + packed.nbytes <= state.room
        changed = id(group) not in state.same
        if eager and changed and fits and state.size <= settings.eager_bytes:
            state.sent += packed.nbytes
            state.chosen.add(id(group))


def tell_of_holders(state: Look, eager: bool) -> None:
    """Send the unchanged again where something outside holds a part of it since they were agreed.

    What the receiver changes is put into that part only if both know it by an id.
    """
    side, survey = state.side, state.survey
    for group in survey.groups:
        packed = state.packed.get(id(group))
        if not group.names or id(group) not in state.same or packed is None:
            continue
        newly = eager and is_newly_held(side, group, survey, packed)
        if newly or is_unknown_there(side, group, survey):
            state.same.discard(id(group))
            state.chosen.add(id(group))


def _is_many(state: Look, group: Group) -> bool:
    """Say whether a group is too large to travel unasked for, and is news to the receiver anyway.

    A list of thousands of losses holds the model, so that it is no more what was agreed on.
    """
    side, base = state.side, state.side.ledger.common(group)
    few = group.objects <= side.settings.small_objects and group.nbytes < side.settings.small_bytes
    if few or not side.ledger.peer_units.isdisjoint(group.oids):
        return False
    return base is None or id(group) in state.changed or not group.key <= base.roots


def _may_be_small(side: Side, group: Group) -> bool:
    blocked = side.ledger.blocked
    return side.ledger.is_small(group, side.settings) and not (
        group.objects > 1000 and any(name in blocked for name in group.names)
    )


def _cost(side: Side, group: Group) -> int:
    return (side.ledger.packed_bytes(group) or group.nbytes) + _AN_OBJECT * group.objects


def _may_wait(state: Look, group: Group) -> bool:
    """Say whether the receiver can put the group away: names alone, all as they were agreed on."""
    if state.in_use is None or not state.in_use.isdisjoint(group.names):
        return False
    base = state.side.ledger.common(group)
    return base is not None and base.roots == group.key and not group.oids


def _known(state: Look, group: Group) -> bool:
    """Say whether the receiver may hold any part of the group."""
    ledger = state.side.ledger
    known = any(root in ledger.base for root in group.roots)
    return known or not ledger.peer_units.isdisjoint(group.oids)
