"""Decides what a switch sends: changed groups that are small or needed, and nothing half.

Owns what is wanted and what is said of the rest: it is declared absent, never left old.  What
changed is found by ``looking``, what cannot go alone by ``closing``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpulease.transfer.values import given_up
from gpulease.transfer.values.collector import collector_waits
from gpulease.transfer.values.groups import Check, Group, Survey, names_of
from gpulease.transfer.values.packing.shipment import Shipment
from gpulease.transfer.values.side import Side
from gpulease.transfer.values.waves import order_of
from gpulease.transfer_next.messages import cannot_move

from .adrift import Adrift, find_adrift, gone_names
from .bulk import names_in_use, note_bulk, say_left, survey_without_bulk
from .closing import close, leave_unneeded
from .items import item_of
from .looking import Look, look_at_rest, tell_of_holders, verify


@dataclass
class Wanted:
    """What the coming cell needs: ``strict`` names must move, ``soft`` ones if they can."""

    strict: frozenset[str] = frozenset()
    soft: frozenset[str] = frozenset()
    everything: bool = False


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
    state = Look(side, survey, check, room=room, changed=set(map(id, adrift.changed)))
    state.same |= side.ties.older(survey, side.ledger.remote)
    _want(state, wanted)
    state.soft.update(map(id, adrift.joined))
    for group in survey.groups:
        if id(group) in state.required and group.names:
            verify(state, group, _strict_reason(group, wanted))
        elif id(group) in state.soft:
            verify(state, group, None)
    if not fetch:
        state.in_use = names_in_use(side, survey) if withhold else None
        look_at_rest(state, eager)
        tell_of_holders(state, eager)
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
    close(state)
    leave_unneeded(state)
    _demand(state, wanted)
    shipment = _shipment(state, names is None and not fetch, cell, asked if fetch else None)
    shipment.items += adrift.items
    if withhold:
        say_left(side, shipment, left)
        note_bulk(side, survey, left)
    return shipment


def _want(state: Look, wanted: Wanted) -> None:
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


def _demand(state: Look, wanted: Wanted) -> None:
    """Refuse where a strictly wanted group does not travel for want of a unit it refers to."""
    for group in state.survey.groups:
        if id(group) not in state.required or not group.names:
            continue
        if id(group) not in state.chosen and id(group) not in state.same:
            blocked = state.side.ledger.blocked
            why = next((blocked[name] for name in group.names if blocked.get(name)), "")
            why = why or "what cannot be pickled"
            raise cannot_move(_strict_reason(group, wanted), why, state.side.place)


def _shipment(
    state: Look, complete: bool, cell: int | None, asked: frozenset[str] | None
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
