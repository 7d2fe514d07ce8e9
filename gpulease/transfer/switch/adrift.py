"""Sends home what a GPU cell changed and then let go of, where home still holds it.

Owns how such objects join the groups of a shipment, or make items of their own.  Which these are
is ``values.loans``'s to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from gpulease.transfer.values.groups import Group, Survey, merge, name_root, names_of
from gpulease.transfer.values.kinds.units import can_pin
from gpulease.transfer.values.packing.loans import lent_in, loan_root
from gpulease.transfer.values.packing.pickling import Packed
from gpulease.transfer.values.packing.shipment import Item
from gpulease.transfer.values.pins import may_have_pins, pins_of
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.refuse import RefusedError


@dataclass
class Adrift:
    """``items`` stand alone; ``joined`` are groups of names that share something with one.

    Those and others are ``changed``, even if they look the same: another object is in the place of
    one that home holds.
    """

    items: list[Item] = field(default_factory=list)
    joined: list[Group] = field(default_factory=list)
    changed: list[Group] = field(default_factory=list)


def find_adrift(side: Side, survey: Survey) -> Adrift:
    """Find what names no longer lead to; ``joined`` groups are changed, and must be sent.

    An item has in ``risen`` what of it may be changed.
    """
    out = Adrift()
    if not side.loans:
        return out
    values, names = side.loans.adrift(survey, gone_names(side), side.survey)
    if not values:
        return out
    changed = side.loans.changed(values)
    roots = [name_root(name) for name in sorted(names)]
    out.changed = [survey.by_root[root] for root in roots if root in survey.by_root]
    alone = side.survey_roots(list(values), (), values)
    for group in alone.groups:
        oids = [name for name in group.names if name in values]
        if not oids or not may_have_pins(side, group):
            continue  # home is told by name that it is gone
        group.roots = tuple(map(loan_root, oids))
        shared = [
            g for g in survey.groups if g.names and not g.inner.keys().isdisjoint(group.inner)
        ]
        if changed.isdisjoint(oids):  # home has but to know that it is no news
            shared = []
        if shared:
            out.joined += _join(side, shared, group)
            out.changed += out.joined
        elif (item := _item(side, group, alone, oids)) is not None:
            risen = () if changed.isdisjoint(oids) else tuple(oids)
            out.items.append(replace(item, risen=risen))
    return out


def _join(side: Side, others: list[Group], group: Group) -> list[Group]:
    """Let a group of names have the roots and objects of ``group`` as well."""
    first = others[0]
    if len(others) > 1 or not may_have_pins(side, first):
        return []
    shared = {key: obj for key, obj in group.inner.items() if key in first.inner and can_pin(obj)}
    # Home's holder has them from now on: they are to be known by id, and one cell may let go of
    # them as well.
    side.loans.lend(first.names, {side.registry.oid(obj): obj for obj in shared.values()})
    vars(first).update(vars(merge([first, group])))
    return [first]


def _item(side: Side, group: Group, survey: Survey, oids: list[str]) -> Item | None:
    def pack(pins: dict[str, Any] | None = None) -> Packed:
        units, used = survey.units, survey.used_globals
        return side.packer.pack(group, units, used, pins=pins, values=survey.values)

    try:
        pins = pins_of(side, group, survey, pack())
        packed = pack(pins)
    except RefusedError:
        return None
    whole = pins.keys() >= set(oids) and packed.needs <= side.ledger.peer_units
    return Item(packed) if whole else None


def is_unchanged(side: Side, packed: Packed) -> bool:
    """Say whether what was offered is still what is here."""
    if lent_in(packed.roots):
        return True  # no name leads to it: nobody can have changed it
    survey = side.survey(names_of(packed.roots))
    groups = [g for g in survey.groups if set(g.roots) & set(packed.roots)]
    merged = merge(groups)
    if merged.key != frozenset(packed.roots):
        return False
    try:
        return side.unchanged(merged, survey, side.pack(merged, survey), packed)
    except RefusedError:
        return False


def gone_names(side: Side) -> set[str]:
    """Return the names that the other side has, or had, and this one has no more."""
    ledger = side.ledger
    held = {*names_of(ledger.base), *ledger.superseded, *ledger.unagreed}
    return held - side.ns.keys() - ledger.remote.keys()
