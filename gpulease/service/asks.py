"""Asks that wait for their turn are answered together: one look, one transaction.

A class that begins is hundreds of asks in one moment, and a commit takes as long for one as for
thirty.  Owns the line, and that a repeated ask with the same idempotency key is the same ask.
Refuses to know who may ask (``lease_commands``) and to decide what an ask becomes
(``policy.asking``).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gpulease.errors import GPULeaseError
from gpulease.policy import asking
from gpulease.policy.model import Lease
from gpulease.service.ledger import Ledger
from gpulease.service.reconcile import Reconciler
from gpulease.store import Change, IdempotencyKey

#: Asks that are answered in one turn.
AT_ONCE = 64


@dataclass(frozen=True)
class Asked:
    """One ask.

    Attributes:
        ask: what is asked for.
        who: who asks, for the audit.
        key: what makes a repeated ask the same one, if its sender cares.
    """

    ask: asking.Ask
    who: str
    key: IdempotencyKey | None = None


@dataclass(frozen=True, eq=False)
class _Turn:
    asked: Asked
    #: The lease, and whether it is a new one.
    answer: asyncio.Future[tuple[Lease, bool]]


class Asks:
    """The line of those who ask."""

    def __init__(self, ledger: Ledger, loop: Reconciler) -> None:
        self._ledger = ledger
        self._loop = loop
        self._line: list[_Turn] = []

    async def answer(self, asked: Asked) -> tuple[Lease, bool]:
        """Return the lease that answers an ask, and whether it is a new one.

        Raises:
            GPULeaseError: those of ``policy.asking.answer``, and what the store refuses with.
        """
        turn = _Turn(asked, asyncio.get_running_loop().create_future())
        self._line.append(turn)
        try:
            async with self._ledger.lock:
                while not turn.answer.done():  # whoever had the lock before may have served us
                    await self._serve_next()
        except BaseException:
            turn.answer.cancel()
            raise
        return turn.answer.result()

    async def _serve_next(self) -> None:
        line = [turn for turn in self._line if not turn.answer.done()]
        now, self._line = line[:AT_ONCE], line[AT_ONCE:]
        try:
            await self._serve(now)
        except GPULeaseError as error:
            for turn in now:
                _refuse(turn, error)
        finally:
            # Whose turn was broken off (its server has gone) leaves the others in the line.
            self._line[:0] = [turn for turn in now if not turn.answer.done()]

    async def _serve(self, line: Sequence[_Turn]) -> None:
        snapshot = self._loop.snapshot()
        known = await self._ledger.begun([turn.asked.key for turn in line], snapshot.now)
        fresh: list[_Fresh] = []
        for turn, (earlier, ticket) in zip(line, known, strict=True):
            try:
                if isinstance(earlier, GPULeaseError):
                    raise earlier
                if earlier is not None:
                    _answer(turn, earlier, new=False)
                    continue
                found = asking.answer(turn.asked.ask, snapshot, secrets.token_hex(8), ticket)
            except GPULeaseError as error:
                _refuse(turn, error)
                continue
            if found.changed:
                await self._record(fresh, snapshot.now)
                fresh = []
                await self._change(turn, found.lease)
                snapshot = self._loop.snapshot()
            else:
                fresh.append(_Fresh(turn, found.lease, found.new))
            if found.new:
                snapshot = replace(snapshot, leases=(*snapshot.leases, found.lease))
        await self._record(fresh, snapshot.now)

    async def _change(self, turn: _Turn, after: Lease) -> None:
        """Answer by a lease that is called back."""
        try:
            before = self._ledger.leases[after.id]
            lease = await self._loop.change(before, after, turn.asked.who, "asked_again")
        except GPULeaseError as error:
            _refuse(turn, error)
        else:
            await self._remember(turn, lease)

    async def _record(self, fresh: Sequence[_Fresh], now: datetime) -> None:
        """Store the new leases, and then answer."""
        changes = [each.change for each in fresh if each.new]
        try:
            if changes:
                await self._ledger.record(changes, now)
                self._loop.wake()
        except GPULeaseError as error:
            if len(fresh) == 1 or error.status >= 500:
                for each in fresh:
                    _refuse(each.turn, error)
                return
            for each in fresh:  # one of them is refused: which one, and nobody else
                await self._record([each], now)
            return
        for each in fresh:
            if each.new:
                _answer(each.turn, each.lease, new=True)
            else:
                await self._remember(each.turn, each.lease)

    async def _remember(self, turn: _Turn, lease: Lease) -> None:
        """Answer by a lease that is there, so that its key means it from now on."""
        if lease.id not in self._ledger.leases:
            return  # it was to be new, and was refused: this one is answered anew
        key = turn.asked.key
        try:
            if key is not None:
                now = self._loop.clock()
                await self._ledger.call(self._ledger.store.remember, key, lease.id, now)
        except GPULeaseError as error:
            _refuse(turn, error)
        else:
            _answer(turn, lease, new=False)


@dataclass(frozen=True)
class _Fresh:
    """An ask that is decided and not stored yet."""

    turn: _Turn
    lease: Lease
    new: bool

    @property
    def change(self) -> Change:
        asked = self.turn.asked
        return Change(None, self.lease, asked.who, "asked", asked.key)


def _answer(turn: _Turn, lease: Lease, *, new: bool) -> None:
    if not turn.answer.done():
        turn.answer.set_result((lease, new))


def _refuse(turn: _Turn, error: GPULeaseError) -> None:
    if not turn.answer.done():
        turn.answer.set_exception(error)
