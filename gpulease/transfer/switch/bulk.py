"""Leaves out of a switch what takes long to walk and nobody needs.

Owns the judgement that it can be left out: bound to the same values as at the last look, agreed on
with the other side or not there at all, and not shared with anything that the cell touches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gpulease.transfer.values.groups import Check, Survey, name_root
from gpulease.transfer.values.packing.ledger import Bulk
from gpulease.transfer.values.packing.shipment import Shipment
from gpulease.transfer.values.pins import seen_outside
from gpulease.transfer.values.side import Side


def survey_without_bulk(
    side: Side, near: Collection[str], check: Check
) -> tuple[Survey, dict[str, Bulk]]:
    """Walk, and return what was left out; ``near`` are the names that the cell needs."""
    bulk = _bulk(side)
    survey = _survey_of_rest(side, near, bulk, check) if bulk else None
    return (survey, bulk) if survey is not None else (side.survey(check=check), {})


def _survey_of_rest(
    side: Side, near: Collection[str], bulk: Mapping[str, Bulk], check: Check
) -> Survey | None:
    """Walk without ``bulk``; None where what is left out is needed, or shared with what is."""
    survey = side.survey([name for name in side.names() if name not in bulk], check)
    in_use = names_in_use(side, survey)
    roots = side.closure(near, survey, reads=True)
    if in_use is None or any(name in in_use or name_root(name) in roots for name in bulk):
        return None
    if any(not each.needs <= survey.units.keys() for each in bulk.values()):
        return None
    touched = {id(g): g for root in roots if (g := survey.by_root.get(root)) is not None}
    if any(seen_outside(side, group, survey) for group in touched.values()):
        return None
    return survey


def _bulk(side: Side) -> dict[str, Bulk]:
    """Return what may be left out: the same values as at the last look, agreed on or not there."""
    base = side.ledger.base
    found = {}
    for name, each in side.ledger.bulk.items():
        same = name in side.ns and id(side.ns[name]) == each.number
        agreed = {id(base.get(name_root(mate))) for mate in each.mates}
        known = base.get(name_root(name))
        if same and len(agreed) == 1 and (known is None or known.roots == _roots(each.mates)):
            found[name] = each
    return {name: each for name, each in found.items() if each.mates <= found.keys()}


def _roots(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(name_root, names))


def say_left(side: Side, shipment: Shipment, left: Mapping[str, Bulk]) -> None:
    """Say of what was left out that the other side is to put it away, or does not get it."""
    for name, each in left.items():
        held = name_root(name) in side.ledger.base
        (shipment.withheld if held else shipment.absent)[name] = each.absent


def note_bulk(side: Side, survey: Survey, left: Mapping[str, Bulk]) -> None:
    """Remember the names whose groups take long to walk."""
    side.ledger.bulk = dict(left) | {
        name: Bulk(
            id(side.ns[name]), frozenset(group.names), frozenset(group.needs),
            side.absent(name, survey),
        )
        for group in survey.groups
        if group.objects > side.settings.small_objects and not group.oids
        for name in group.names
    }  # fmt: skip


def names_in_use(side: Side, survey: Survey) -> set[str] | None:
    """Return the names that functions on either side read; None where that cannot be told."""
    if any(group.unbounded for group in survey.groups):
        return None
    read = {name for group in survey.groups for name in group.reads}
    return read.union(*(absent.reads for absent in side.ledger.remote.values()))
