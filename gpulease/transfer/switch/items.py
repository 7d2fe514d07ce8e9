"""One group as it travels: what of it keeps its identity there, and what the other side has."""

from __future__ import annotations

import types
from dataclasses import replace
from typing import Any

from gpulease.sides.looks import is_a
from gpulease.transfer.values.groups import Check, Group, Survey
from gpulease.transfer.values.older import read_while_packed
from gpulease.transfer.values.packing.chunks import runs_to_send
from gpulease.transfer.values.packing.pickling import Packed
from gpulease.transfer.values.packing.shipment import Item
from gpulease.transfer.values.pins import must_stay, pins_of
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.messages import cannot_move
from gpulease.transfer_next.refuse import RefusedError
from gpulease.transfer_next.stayed import type_name

_IN_USE = (
    "it is in use on the GPU by what cannot travel (a generator or a thread, say), and it cannot "
    "be written in place there any more; bind the name to a copy"
)


def item_of(
    side: Side,
    survey: Survey,
    group: Group,
    packed: Packed,
    required: bool,
    *,
    wanted: bool,
    check: Check,
) -> Item:
    """Return a packed group for a shipment; a module that nobody ``wanted`` may be left."""
    packed = _pinned(side, survey, group, packed, check)
    if not must_stay(side, group, survey) <= packed.skeletons.keys():
        what = ", ".join(group.names) or "a function or class"
        raise cannot_move(what, _IN_USE, side.place)
    module = "" if wanted else _module_name(side, group)
    ledger = side.ledger
    held = ledger.held(packed)
    sent = runs_to_send(packed, held, ledger.known_chunks(packed.roots))
    kinds = {name: type_name(survey.values[name]) for name in group.names}
    read = read_while_packed(survey, group)
    return Item(packed, required, module, held, ledger.risen(packed), sent, kinds=kinds, read=read)


def _pinned(side: Side, survey: Survey, group: Group, packed: Packed, check: Check) -> Packed:
    """Return the group packed so that objects seen from outside it keep their identity.

    The digest stays that of the plain form: pins come and go without a change of content.
    """
    pins = pins_of(side, group, survey, packed)
    if not pins:
        return packed
    try:
        again = side.packer.pack(group, survey.units, survey.used_globals, pins=pins, check=check)
    except RefusedError:  # something that pickling leaves out was counted in
        return packed
    return replace(again, digest=packed.digest)


def _module_name(side: Side, group: Group) -> str:
    if not group.modules or len(group.roots) != 1 or not group.names:
        return ""
    value: Any = side.ns.get(group.names[0])
    return value.__name__ if is_a(value, types.ModuleType) else ""
