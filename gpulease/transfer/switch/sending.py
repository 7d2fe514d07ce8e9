"""Sends home's values before a GPU cell.

Owns what a cell is thought to need of home and the offer of one shipment, to its answer.  It
decides nothing about ownership.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gpulease.errors import GPULeaseError
from gpulease.sides.names.analysis import Use
from gpulease.sides.names.variables import builtin_names
from gpulease.transfer.values.acknowledgement import acknowledge, unknown
from gpulease.transfer.values.groups import name_root, names_of
from gpulease.transfer.values.packing.shipment import Outcome, Shipment
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import Note, Place, Progress, SwitchReport
from gpulease.transfer_next.messages import cannot_move, not_taken, still_loading
from gpulease.transfer_next.peer import Peer
from gpulease.wire.message import Message, Pending

from .planning import Wanted, plan

#: How often a shipment is planned anew: the receiver may lack a unit it was thought to have.
_TRIES = 4


class Sending:
    """Home's shipments; main thread only."""

    def __init__(self, side: Side, peer: Peer) -> None:
        self._side = side
        self._peer = peer
        #: What an interrupt left open: whether the other side has taken it.
        self._open: tuple[Pending, Shipment] | None = None
        #: By name, why the last shipment's part did not load there: it is said once.
        self._said: dict[str, str] = {}

    def wanted(self, use: Use) -> Wanted:
        """Return what the coming cell needs of what is here."""
        here = frozenset(self._side.names())
        return Wanted(use.strict & here, use.reads | (here & builtin_names()), use.unbounded)

    def misses(self, use: Use) -> bool:
        """Say whether the cell may need something that only home has (sticky cells)."""
        side = self._side
        base, withheld = side.ledger.base, side.ledger.withheld
        only = {n for n in side.names() if name_root(n) not in base or n in withheld}
        if not only:
            return False
        if use.unbounded:
            return True
        near = set(use.reads | (only & builtin_names()))
        here = set(side.names())
        while near & (here | side.ledger.remote.keys()):
            survey = side.survey(near & here)
            if any(group.unbounded for group in survey.groups):
                return True
            more = {r[2:] for r in side.closure(near, survey, reads=True) if r[:2] == "n:"} - near
            if not more & here:
                break
            near |= more
        return bool(near & only)

    def send(self, wanted: Wanted, progress: Progress | None, started: float) -> SwitchReport:
        """Send what changed and what is wanted; raises ``cannot_move`` or ``transfer_failed``."""
        outcome = Outcome(True)
        for _ in range(_TRIES):
            # What a thread there changes by a reference of its own must stay in sight.
            withhold = not self._side.ledger.peer_runs_on
            shipment = plan(self._side, wanted, withhold=withhold)
            outcome = self._offer(shipment, progress)
            if not outcome.lacks and not outcome.missed:
                _refuse_load(shipment, outcome)
            if outcome.ok and not outcome.lacks:
                break
        if not outcome.ok:
            raise not_taken()
        failed = outcome.refusals([item.packed.roots for item in shipment.items])
        new = [(name, why) for name, why in failed.items() if self._said.get(name) != why]
        self._said = failed
        notes = tuple(
            Note("cannot_move", f"{name} stays in your notebook: {why}", (name,))
            for name, why in new
        ) + tuple(
            Note(
                "cannot_move", f"{name} is not on the GPU now: a part of it failed there.", (name,)
            )
            for name in outcome.dropped
        )
        return SwitchReport(shipment.names, shipment.nbytes, time.monotonic() - started, notes)

    def _offer(self, shipment: Shipment, progress: Progress | None) -> Outcome:
        wire = self._peer.need()
        header, blobs = shipment.encode()
        show = _bytes_progress(progress, shipment)
        pending = wire.request("commit", header, blobs, show, beside=shipment.found_there)
        try:
            reply = pending.wait()
        except KeyboardInterrupt:
            wire.abort(pending)
            self._open = pending, shipment.emptied()
            raise
        except GPULeaseError as error:
            self._failed(shipment, error)
            raise
        assert reply is not None
        outcome = Outcome.from_json(reply.body)
        acknowledge(self._side, shipment, outcome)
        return outcome

    def settle(self) -> None:
        """Learn whether the other side took what was interrupted; raises ``still_loading``.

        An interrupt does not wait for that: the other side may be loading, and cannot be stopped.
        """
        if self._open is None:
            return
        pending, shipment = self._open
        try:
            reply = pending.wait(self._side.settings.settle_wait)
        except GPULeaseError as error:
            self._failed(shipment, error)
            reply = Message(0, "", Outcome(False).to_json())
        if reply is None:
            raise still_loading()
        self._open = None
        acknowledge(self._side, shipment, Outcome.from_json(reply.body))

    def _failed(self, shipment: Shipment, error: GPULeaseError) -> None:
        """Unless it never began, nobody knows how far the other side came: it is sent again."""
        if error.reason != "transfer_abandoned":
            unknown(self._side, shipment)

    def forget(self) -> None:
        """The other side is gone, or another one."""
        self._open = None


def _refuse_load(shipment: Shipment, outcome: Outcome) -> None:
    for index, why in outcome.failed.items():
        item = shipment.items[index]
        if item.required:
            names = ", ".join(names_of(item.packed.roots))
            raise cannot_move(names or "a function or class of the cell", why, Place.HOME)


def _bytes_progress(
    progress: Progress | None, shipment: Shipment
) -> Callable[[int, int], None] | None:
    if progress is None or not shipment.items:
        return None
    first = shipment.names[0] if shipment.names else ""
    progress(first, 0, shipment.nbytes)
    return lambda done, all_of_it: progress(first, done, all_of_it)
