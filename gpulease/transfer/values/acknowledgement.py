"""What one side knows of the other once a shipment was answered, or never was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpulease.transfer.values.packing.loans import lent_in
from gpulease.transfer.values.packing.shipment import Outcome, Shipment

from .groups import name_root, names_of

if TYPE_CHECKING:
    from .side import Side


def acknowledge(side: Side, shipment: Shipment, outcome: Outcome) -> None:
    """Enter what the receiver made of a shipment of this side."""
    ledger = side.ledger
    ledger.forget((*outcome.gone, *outcome.lacks))
    ledger.differ(map(name_root, outcome.dropped))
    ledger.culprits.update(outcome.culprits)
    if not outcome.ok:
        ledger.differ("u:" + oid for oid in outcome.lacks)
        ledger.forget_chunks(outcome.missed)
        return
    for index, item in enumerate(shipment.items):
        packed = item.packed
        names = names_of(packed.roots)
        if index in outcome.skipped:
            side.loans.forget(lent_in(packed.roots))
        if index in outcome.failed or index in outcome.deferred or index in outcome.skipped:
            ledger.differ(packed.roots)
            ledger.forget(packed.needs)  # what else came for it is held by nothing there
            if outcome.failed.get(index):
                ledger.blocked.update(dict.fromkeys(names, outcome.failed[index]))
            continue
        ledger.agree(packed)
        ledger.peer_units.update(packed.skeletons)
        side.loans.forget(lent_in(packed.roots))
        side.lent.sent(names, packed.skeletons)
    side.lent.left(shipment.deleted)
    gone = [*map(name_root, (*shipment.absent, *shipment.deleted))]
    ledger.differ(gone)
    if side.label == "h":  # home puts older values aside, the companion does not
        ledger.forget_chunks(gone)
    told = {*shipment.names, *shipment.same, *shipment.absent, *shipment.deleted}
    ledger.withheld = (ledger.withheld - told) | shipment.withheld.keys()
    said = {*shipment.names, *shipment.absent, *shipment.deleted}
    ledger.superseded -= said
    ledger.unagreed -= said
    ledger.untold.difference_update(shipment.gone)
    if shipment.state:
        side.state.agreed(shipment.state)


def unknown(side: Side, shipment: Shipment) -> None:
    """Whether the receiver took any of a shipment is not known: nothing of it is agreed on."""
    ledger = side.ledger
    told = (*shipment.absent, *shipment.deleted, *shipment.withheld, *shipment.same)
    ledger.unagreed.update(told, shipment.names)
    ledger.differ(map(name_root, told))
    for item in shipment.items:
        ledger.differ(item.packed.roots)
