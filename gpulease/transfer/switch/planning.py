"""Decides what a switch sends: changed groups that are small or needed, and nothing half.

Owns verification against the own baseline, the eager budget, and the rule that a group never
travels without the units it needs.  What is not sent is declared absent, never left old.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gpulease.transfer.refuse import RefusedError
from gpulease.transfer.values import given_up
from gpulease.transfer.values.collector import collector_waits
from gpulease.transfer.values.groups import Check, Group, Survey, merge, names_of
from gpulease.transfer.values.packing.ledger import Base
from gpulease.transfer.values.packing.pickling import Packed
from gpulease.transfer.values.packing.shipment import Shipment
from gpulease.transfer.values.pins import is_newly_held, is_unknown_there, refuse_kept
from gpulease.transfer.values.side import Side
from gpulease.transfer.values.stays import leaves
from gpulease.transfer.values.waves import order_of

from .adrift import Adrift, find_adrift, gone_names
from .bulk import names_in_use, note_bulk, say_left, survey_without_bulk
from .items import item_of
from .messages import cannot_move


@dataclass
class Wanted:
    """What the coming cell needs: ``strict`` names must move, ``soft`` ones if they can."""

    strict: frozenset[str] = frozenset()
    soft: frozenset[str] = frozenset()
    everything: bool = False


@dataclass
class _State:
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
    #: What was looked at unasked for.
    size: int = 0
    seconds: float = 0.0

    def group_of_unit(self, oid: str) -> Group | None:
        return self.survey.by_root.get("u:" + oid)


@collector_waits()
def plan(
    side: Side,
    wanted: Wanted,
    *,
    names: Iterable[str] | None = None,
    survey: Survey | None = None,
    cell: int | None = None,
    fetch: bool = False,
    eager: bool = True,
    room: int | None = None,
    withhold: bool = False,
    check: Check = lambda: None,
) -> Shipment:
    """Return the shipment for one switch (with ``names``, for part of one).

    ``survey`` is what a walk from just these ``names`` has found since the last cell.
    With ``fetch`` only what is wanted is looked at; without ``eager`` the small waits as well, and
    so does what is more than ``room`` bytes together.
    With ``withhold`` the large that both sides hold and nobody will read is not looked at.
    Raises GPULeaseError ``cannot_move`` when a strictly wanted name cannot be packed.
    """
    side.supersede()
    near, whole = wanted.strict | wanted.soft, names is not None or wanted.everything
    if withhold and not whole:
        survey, left = survey_without_bulk(side, near, check)
    else:
        survey, left = survey or side.survey(names, check), {}
    side.ties.look(survey, side.ns, whole=names is None)
    adrift = Adrift() if fetch else find_adrift(side, survey)
    state = _State(side, survey, check, room=room, changed=set(map(id, adrift.changed)))
    state.same |= side.ties.older(survey, side.ledger.remote)
    _want(state, wanted)
    state.soft.update(map(id, adrift.joined))
    for group in survey.groups:
        if id(group) in state.required and group.names:
            _verify(state, group, _strict_reason(group, wanted))
        elif id(group) in state.soft:
            _verify(state, group, None)
    if not fetch:
        state.in_use = names_in_use(side, survey) if withhold else None
        _look_at_rest(state, eager)
        _tell_of_holders(state, eager)
    for group in survey.groups:
        # A unit that the receiver has may be in use there by what only it knows: never left old.
        must = id(group) in state.soft or any(oid in side.ledger.peer_units for oid in group.oids)
        if must and id(group) in state.packed and id(group) not in state.same:
            state.chosen.add(id(group))
    asked = wanted.strict | wanted.soft
    if fetch:  # whoever asks has not got it, whatever was agreed before
        again = {id(g) for g in survey.groups if asked & set(g.names)} & state.same
        state.same -= again
        state.chosen |= again
    _close(state)
    _leave_unneeded(state)
    _demand(state, wanted)
    shipment = _shipment(state, names is None and not fetch, cell, asked if fetch else None)
    shipment.items += adrift.items
    if withhold:
        say_left(side, shipment, left)
        note_bulk(side, survey, left)
    return shipment


def _known(state: _State, group: Group) -> bool:
    """Say whether the receiver may hold any part of the group."""
    ledger = state.side.ledger
    known = any(root in ledger.base for root in group.roots)
    return known or not ledger.peer_units.isdisjoint(group.oids)


def _want(state: _State, wanted: Wanted) -> None:
    """Find the groups that must and should travel; units of required groups are required."""
    side, survey = state.side, state.survey
    known = [name for name in wanted.strict if name in side.ns]
    roots = side.closure(known, survey, reads=False)
    state.required = {id(survey.by_root[r]) for r in roots if r in survey.by_root}
    near = list(wanted.strict | wanted.soft)
    roots = side.closure(near, survey, reads=True)
    reached = [survey.by_root[r] for r in roots if r in survey.by_root]
    everything = wanted.everything or any(group.unbounded for group in reached)
    state.soft = {id(g) for g in (survey.groups if everything else reached)} | state.required


def _strict_reason(group: Group, wanted: Wanted) -> str:
    named = [name for name in group.names if name in wanted.strict]
    return ", ".join(named or group.names) or "a function or class the cell uses"


def _verify(state: _State, group: Group, strict: str | None) -> None:
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
            raise cannot_move(strict, error.kind) from error
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


def _joint(state: _State, base: Base) -> bool:
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


def _look_at_rest(state: _State, eager: bool) -> None:
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
        over = state.size > settings.eager_bytes or state.seconds > settings.eager_seconds
        if not held and over:
            continue
        if held and (over or not side.ledger.is_small(group, settings)) and _may_wait(state, group):
            state.withheld.add(id(group))
            continue
        if _is_many(state, group):
            continue
        _verify(state, group, None)
        packed = state.packed.get(id(group))
        if packed is None:
            continue
        state.seconds += packed.seconds
        if not side.ledger.is_small(group, settings):
            continue
        state.size += packed.nbytes
        fits = state.room is None or state.sent + packed.nbytes <= state.room
        changed = id(group) not in state.same
        if eager and changed and fits and state.size <= settings.eager_bytes:
            state.sent += packed.nbytes
            state.chosen.add(id(group))


def _tell_of_holders(state: _State, eager: bool) -> None:
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


def _is_many(state: _State, group: Group) -> bool:
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


def _cost(side: Side, group: Group) -> tuple[tuple[float, int], int]:
    return side.ledger.measured(group) or (0.0, 0), _estimate(group)


def _may_wait(state: _State, group: Group) -> bool:
    """Say whether the receiver can put the group away: names alone, all as they were agreed on."""
    if state.in_use is None or not state.in_use.isdisjoint(group.names):
        return False
    base = state.side.ledger.common(group)
    return base is not None and base.roots == group.key and not group.oids


def _estimate(group: Group) -> int:
    return group.nbytes + 100 * group.objects


def _close(state: _State) -> None:  # noqa: C901 - a fixed point reads best in one piece
    """Drop groups whose units do not travel and are not there, until nothing changes."""
    peer = state.side.ledger.peer_units

    def there(oid: str) -> bool:
        group = state.group_of_unit(oid)
        if group is None:
            return oid in peer
        return id(group) in state.chosen or (id(group) in state.same and oid in peer)

    for group in state.survey.groups:  # a unit the receiver lost is sent again
        if id(group) in state.same and any(oid not in peer for oid in group.oids):
            state.same.discard(id(group))
            if id(group) in state.packed:  # else a part of it is newer there
                state.chosen.add(id(group))
    changed = True
    while changed:
        changed = False
        for group in state.survey.groups:
            if id(group) not in state.chosen and id(group) not in state.same:
                continue
            packed = state.packed.get(id(group))
            missing = [oid for oid in (packed or group).needs if not there(oid)]
            if not missing:
                continue
            for oid in missing:
                why = _unit_reason(state, state.group_of_unit(oid))
                state.stays.setdefault(id(group), why)
                for name in group.names:
                    state.side.ledger.blocked.setdefault(name, why)
            state.chosen.discard(id(group))
            state.same.discard(id(group))
            changed = True


def _leave_unneeded(state: _State) -> None:
    """Do not send units that nothing the receiver gets refers to: there they would be garbage.

    They belong to something that stays here, a thread say, and would be sent again each time.
    """
    travels = state.chosen | state.same
    wanted = state.required | state.soft
    peer = state.side.ledger.peer_units
    # What the receiver has of them already is kept as it is here, with what it refers to.
    stay = {
        id(group)
        for group in state.survey.groups
        if group.names
        or (id(group) in wanted and not _is_leaf(state, group))
        or not peer.isdisjoint(group.oids)
    }
    needed: set[str] = set()
    first = stay & travels  # once: there may be thousands
    queue = [g for g in state.survey.groups if id(g) in first]
    while queue:
        group = queue.pop()
        fresh = (state.packed.get(id(group)) or group).needs - needed
        needed |= fresh
        queue += [found for oid in fresh if (found := state.group_of_unit(oid)) is not None]
    for group in state.survey.groups:
        if id(group) not in stay and needed.isdisjoint(group.oids):
            state.chosen.discard(id(group))


def _is_leaf(state: _State, group: Group) -> bool:
    """Say whether it stands for what stays here: whoever has it may leave it out of its pickle."""
    return len(group.roots) == 1 and leaves.stays(state.survey.units.get(group.oids[0]))


def _demand(state: _State, wanted: Wanted) -> None:
    """Refuse where a strictly wanted group does not travel for want of a unit it refers to."""
    for group in state.survey.groups:
        if id(group) not in state.required or not group.names:
            continue
        if id(group) not in state.chosen and id(group) not in state.same:
            blocked = state.side.ledger.blocked
            why = next((blocked[name] for name in group.names if blocked.get(name)), "")
            raise cannot_move(_strict_reason(group, wanted), why or "what cannot be pickled")


def _unit_reason(state: _State, group: Group | None) -> str:
    if group is None:
        return ""
    blocked = state.side.ledger.blocked
    named = next((blocked[name] for name in group.names if name in blocked), "")
    return named or state.stays.get(id(group), "")


def _shipment(
    state: _State, complete: bool, cell: int | None, asked: frozenset[str] | None
) -> Shipment:
    side, survey = state.side, state.survey
    items = []
    chosen = [group for group in survey.groups if id(group) in state.chosen]
    order = order_of(survey, chosen, lambda group: state.packed[id(group)].needs)
    for group in chosen:
        given_up.share(group.inner.values())
        packed, required = state.packed[id(group)], id(group) in state.required
        item = item_of(
            side, survey, group, packed, required, wanted=id(group) in state.soft, check=state.check
        )
        wave, hidden = order.waves.get(id(group), 0), order.hidden.get(id(group), ())
        items.append(replace(item, wave=wave, hidden=hidden))
    sent = {name for item in items for name in names_of(item.packed.roots)}
    same = {n for g in survey.groups if id(g) in state.same for n in g.names}
    looked = {name for group in survey.groups for name in group.names}
    absent = {}
    put_away = {n for g in survey.groups if id(g) in state.withheld for n in g.names}
    missing = looked - sent - same - put_away
    for name in sorted(missing if asked is None else missing & asked):
        absent[name] = side.absent(name, survey, cell)
    deleted = sorted(gone_names(side))
    for name in deleted:
        side.ledger.blocked.pop(name, None)
    return Shipment(
        items, absent, tuple(deleted), tuple(sorted(same)), complete, side.state.capture(),
        side.ledger.gone(side.registry), {n: side.absent(n, survey) for n in sorted(put_away)},
        tuple(sorted(side.ledger.superseded & {*sent, *deleted, *absent})),
    )  # fmt: skip
