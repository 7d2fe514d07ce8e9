"""Asking for a GPU: who asks for which server, and what is asked at once is decided at once.

A class that begins is hundreds of asks in one moment, and a commit takes as long for one change as
for thirty: what people ask for waits for its turn, and then there is one look and one transaction.
A repeated ask with the same idempotency key is the same ask.  ``policy.admission_check`` says what
an ask becomes, ``leases.commands`` who may do what to a lease that is there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus

from gpulease.errors import GPULeaseError
from gpulease.policy import admission_check, queue
from gpulease.policy.model import Lease, Snapshot, keep
from gpulease.protocol.asks import AskBody
from gpulease.service.control_loop.ledger import Ledger, Ticket
from gpulease.service.control_loop.reconcile import Reconciler
from gpulease.service.hubs.api import HubServer
from gpulease.service.hubs.auth import Asker, prove_server
from gpulease.service.hubs.hubs import Hubs
from gpulease.store import Change, IdempotencyKey
from gpulease.store.writing import remember

#: How long an idempotency key is remembered.
_KEY_LIFE = timedelta(hours=24)
#: What is done in one turn.
AT_ONCE = 64


@dataclass(frozen=True)
class Asked:
    """One ask.

    Attributes:
        ask: what is asked for.
        who: who asks, for the audit.
        key: what makes a repeated ask the same one, if its sender cares.
    """

    ask: admission_check.Ask
    who: str
    key: IdempotencyKey | None = None


@dataclass(frozen=True)
class _Origin:
    """Whose lease is asked for, and for which server."""

    user: str
    server: str
    groups: tuple[str, ...]
    ready: bool


@dataclass(eq=False)
class LeaseRequests:
    """Every ask of a person or their notebook.

    Args:
        batcher: the line in which they wait.
        clock: the time, UTC.
        hub: knows the servers.
        is_batch: whether a server of a user runs a whole notebook.
    """

    batcher: RequestBatcher
    clock: Callable[[], datetime]
    hub: Hubs
    is_batch: Callable[[str, str], bool] = lambda _user, _server: False

    async def ask(self, asker: Asker, body: AskBody, key: str = "") -> tuple[Lease, bool]:
        """Return the lease that answers an ask, and whether it is a new one.

        Raises:
            GPULeaseError: ``no_server``, ``no_such_server``, ``which_server``,
                and those of ``policy.admission_check.answer``.
        """
        origin = await self._origin(asker, body)
        ask = admission_check.Ask(
            user=origin.user,
            server=origin.server,
            gpu_class=body.get("gpu_class"),
            count=body.get("count", body.get("nodes", 1)),
            nodes=body.get("nodes", 1),
            min_count=body.get("min_count"),
            at_least=body.get("at_least"),
            wanted=body.get("seconds"),
            kernel_id=body.get("kernel_id"),
            origin=body.get("origin", "magic"),
            groups=origin.groups,
            in_quota_only=body.get("in_quota_only", False),
            needs=body.get("needs", ""),
            project=body.get("project"),
            server_ready=origin.ready,
            batch=self.is_batch(origin.user, origin.server),
        )
        idempotency = _key(asker, body, key, self.clock())
        return await self.batcher.ask(Asked(ask, asker.name, idempotency))

    async def prove(self, asker: Asker) -> str:
        """Return the asking server's name, proved.

        Raises:
            GPULeaseError: ``no_server``, ``hub_unreachable``.
        """
        return await prove_server(asker, self.hub)

    async def servers(self, user: str) -> Mapping[str, HubServer]:
        """Return the active servers of a user.

        Raises:
            GPULeaseError: ``hub_unreachable`` (502).
        """
        servers = await self.hub.servers(user, fresh=True)
        return {name: server for name, server in servers.items() if server.active}

    async def _origin(self, asker: Asker, body: AskBody) -> _Origin:
        wanted, asked = body.get("server"), body.get("user")
        user = asker.name if asked is None else asked
        if user != asker.name and not asker.admin:
            raise GPULeaseError("not_yours", "Only an admin may ask for another user.")
        if asker.claimed_server is not None and user == asker.name:
            server = await self.prove(asker)
            if wanted is not None and wanted != server:
                raise GPULeaseError("not_yours", "A server may ask for itself only.")
            return _Origin(user, server, asker.groups, ready=True)
        groups = asker.groups if user == asker.name else self.hub.sure_groups_of(user)
        seen = None if wanted is None else self.hub.seen(user).get(wanted)
        if seen is not None and seen.active and seen.ready:  # a click need not wait for the hub
            return _Origin(user, seen.name, groups, ready=True)
        active = await self.servers(user)
        server = wanted if wanted is not None else _only(active)
        if server not in active:
            await self._check_exists(user, server)
        ready = server in active and active[server].ready
        return _Origin(user, server, groups, ready)

    async def _check_exists(self, user: str, server: str) -> None:
        """Refuse to queue for what nobody could ever start."""
        if not await self.hub.knows(user, server):
            raise GPULeaseError(
                "no_such_server",
                f"The hub knows no server {server!r} of {user}.",
                next_step="Name one of your servers, or leave the name out.",
                numbers={"user": user, "server": server},
            )


def _key(asker: Asker, body: AskBody, key: str, now: datetime) -> IdempotencyKey | None:
    if not key:
        return None
    fingerprint = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return IdempotencyKey(asker.name, key, fingerprint, now + _KEY_LIFE)


def _only(active: Mapping[str, HubServer]) -> str:
    if len(active) == 1:
        return next(iter(active))
    if not active:
        raise GPULeaseError(
            "no_server",
            "None of your servers runs.",
            next_step="Start your server, then request a GPU for it.",
            status=409,
        )
    raise GPULeaseError(
        "which_server",
        f"{len(active)} of your servers run: say for which the GPU is.",
        next_step="Choose one of them.",
        numbers={"servers": sorted(active)},
    )


#: Decides about a lease that is there, from the ledger as it is then; may refuse.
Decide = Callable[[], Change]


@dataclass(frozen=True, eq=False)
class _Turn:
    wanted: Asked | Decide
    #: The lease, and whether it is a new one.
    answer: asyncio.Future[tuple[Lease, bool]]

    @property
    def key(self) -> IdempotencyKey | None:
        return self.wanted.key if isinstance(self.wanted, Asked) else None

    def done(self, lease: Lease, *, new: bool) -> None:
        if not self.answer.done():
            self.answer.set_result((lease, new))

    def refused(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(frozen=True)
class _Decided:
    """What one turn becomes; without a change it is answered by a lease that is there."""

    turn: _Turn
    lease: Lease
    change: Change | None = None


class RequestBatcher:
    """The line of those who ask for something."""

    def __init__(self, ledger: Ledger, loop: Reconciler) -> None:
        self._ledger = ledger
        self._loop = loop
        self._line: list[_Turn] = []

    async def ask(self, asked: Asked) -> tuple[Lease, bool]:
        """Return the lease that answers an ask, and whether it is a new one.

        Raises:
            GPULeaseError: those of ``policy.admission_check.answer``, and what the store
                refuses with.
        """
        return await self._wait(asked)

    async def change(self, decide: Decide) -> Lease:
        """Make a change of a lease that is there, and return the lease as it is then.

        Raises:
            GPULeaseError: what ``decide`` and the store refuse with.
        """
        return (await self._wait(decide))[0]

    async def _wait(self, wanted: Asked | Decide) -> tuple[Lease, bool]:
        turn = _Turn(wanted, asyncio.get_running_loop().create_future())
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
            await _Round(self._ledger, self._loop).serve(now)
        except GPULeaseError as error:
            for turn in now:
                turn.refused(error)
        finally:
            # Whose turn was broken off (its server has gone) leaves the others in the line.
            self._line[:0] = [turn for turn in now if not turn.answer.done()]


class _Round:
    """Some turns that are decided one after the other and stored together."""

    def __init__(self, ledger: Ledger, loop: Reconciler) -> None:
        self._ledger = ledger
        self._loop = loop
        self._snapshot = self._look()  # with what was decided since
        self._decided: dict[str, _Decided] = {}  # by lease, and not stored yet

    async def serve(self, line: Sequence[_Turn]) -> None:
        """Answer each; those whose answer hangs on a write that failed may stay unanswered.

        Raises:
            GPULeaseError: the store does not answer.
        """
        begun = await self._ledger.begun([turn.key for turn in line], self._snapshot.now)
        for turn, (earlier, ticket) in zip(line, begun, strict=True):
            try:
                if isinstance(earlier, GPULeaseError):
                    raise earlier
                if earlier is not None:
                    turn.done(earlier, new=False)
                    continue
                decided = self._decide(turn, ticket)
                if decided.lease.id in self._decided:  # what is not stored is not true
                    await self._store()
                    self._snapshot = self._look()
                    decided = self._decide(turn, ticket)
            except Exception as error:  # noqa: BLE001 - told to whose turn it was, whatever it is
                turn.refused(error)
            else:
                self._take(decided)
        await self._store()

    def _look(self) -> Snapshot:
        """Return what is known now; leases that have ended, a thousand maybe, decide nothing."""
        known = replace(self._loop.snapshot(), leases=self._ledger.live())
        keep(queue.by_person, known, self._ledger.live_by_person())
        return known

    def _decide(self, turn: _Turn, ticket: Ticket) -> _Decided:
        wanted = turn.wanted
        if not isinstance(wanted, Asked):
            change = wanted()
            return _Decided(turn, change.after, change if change.after != change.before else None)
        found = admission_check.answer(wanted.ask, self._snapshot, secrets.token_hex(8), ticket)
        if not found.new and not found.changed:
            return _Decided(turn, found.lease)
        before = None if found.new else self._ledger.leases[found.lease.id]
        why = "asked" if found.new else "asked_again"
        return _Decided(turn, found.lease, Change(before, found.lease, wanted.who, why, wanted.key))

    def _take(self, decided: _Decided) -> None:
        self._decided[decided.lease.id] = decided
        if decided.change is None:
            return
        before, after = decided.change.before, decided.lease
        if before is None:
            self._snapshot = queue.with_new(self._snapshot, after)
        else:
            rest = (each for each in self._snapshot.leases if each is not before)
            self._snapshot = replace(self._snapshot, leases=(*rest, after))

    async def _store(self) -> None:
        """Store what was decided, and then answer."""
        decided, self._decided = list(self._decided.values()), {}
        if await self._stored(decided) or len(decided) == 1:
            return
        for each in decided:  # one of them is refused: which one, and nobody else
            if not await self._stored([each]):
                return  # those after it are decided anew, without it

    async def _stored(self, decided: Sequence[_Decided]) -> bool:
        """Tell whether it was; one that is refused alone, and all whom the store fails, know."""
        try:
            await self._loop.change([x.change for x in decided if x.change is not None])
        except GPULeaseError as error:
            failed = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            if len(decided) == 1 or failed:
                for each in decided:
                    each.turn.refused(error)
            return failed
        for each in decided:
            await self._answer(each)
        return True

    async def _answer(self, decided: _Decided) -> None:
        """Answer what is stored; the key of an ask means that lease from now on."""
        turn, change = decided.turn, decided.change
        try:
            if change is None and turn.key is not None:
                now = self._loop.clock()
                await self._ledger.write(remember, [(turn.key, decided.lease.id)], now)
        except GPULeaseError as error:
            turn.refused(error)
        else:
            turn.done(decided.lease, new=change is not None and change.before is None)
