"""Brings values from the companion to home: everything that changed, or names that are wanted.

Owns how often it is asked and what is wanted along with a name.  Committing is ``arrivals``'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.sides.names.analysis import Use
from gpulease.sides.names.variables import builtin_names
from gpulease.transfer.values.groups import name_root
from gpulease.transfer.values.packing.shipment import Incoming
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import LAST_ERROR, Place, Progress
from gpulease.transfer_next.messages import cannot_move, not_taken
from gpulease.transfer_next.peer import Peer
from gpulease.wire.message import Message

from .arrivals import Arrival, Arrivals
from .structure import Structures
from .unavailable import Unavailable

#: How often something is asked for again: a thread changed it meanwhile, or a unit was missing.
_TRIES = 3

Brought = tuple[tuple[str, ...], int]  # names, bytes


class Bringing:
    """Main thread only."""

    def __init__(
        self, side: Side, unavailable: Unavailable, peer: Peer, arrivals: Arrivals
    ) -> None:
        self._side = side
        self._unavailable = unavailable
        self._peer = peer
        self._arrivals = arrivals
        self.structures = Structures(side, peer)

    def take(self, message: Message) -> Brought:
        """Commit the reply to a ``collect`` after a cell; what is not sure comes into doubt."""
        self._side.ledger.peer_runs_on = bool(message.body["threads"])
        if message.body.get("current"):
            return (), 0
        arrival = Arrival.of(message)
        if arrival.threads and not self._arrivals.confirmed(arrival):
            self._unavailable.doubt(arrival.names)
            return (), 0
        moved, ok = self._arrivals.accept(arrival)
        if not ok:
            self._unavailable.doubt(name for name in arrival.names if name not in moved)
        return moved, arrival.incoming.nbytes

    def all_changed(self, progress: Progress | None, use: Use | None = None) -> Brought:
        """Bring everything that changed on the GPU; raises ``transfer_failed``.

        The large comes at once where a cell of this ``use`` reads it: it is looked at anyway.
        """
        left = _TRIES
        while left:
            message = self._ask_for_all(progress, sorted(use.reads | use.strict) if use else [])
            self._side.ledger.peer_runs_on = bool(message.body["threads"])
            if message.body.get("current"):
                return (), 0
            arrival = Arrival.of(message)
            left -= 1
            if arrival.threads and not self._arrivals.confirmed(arrival) and left:
                continue  # a thread of the companion keeps changing it: read it again
            moved, ok = self._arrivals.accept(arrival)
            if ok:
                return moved, arrival.incoming.nbytes
            left += self._arrivals.comes_sealed
        raise not_taken()

    def _ask_for_all(self, progress: Progress | None, read: list[str]) -> Message:
        """Ask for what changed; where even the small does not fit in memory, for its names."""
        try:
            body = {"touched": None, "room": self._peer.room(), "read": read}
            return self._peer.ask("collect", body, progress=progress)
        except GPULeaseError as error:
            if error.reason != "too_big_for_home":
                raise
            body = {"touched": None, "eager": False}
            return self._peer.ask("collect", body, progress=progress)

    def for_cell(self, use: Use, progress: Progress | None) -> Brought:
        """Fetch what a home cell may read, to a fixed point over functions' globals."""
        try:
            return self._fetch_near(use, progress)
        except BaseException:
            self.structures.put_away()
            raise

    def _fetch_near(self, use: Use, progress: Progress | None) -> Brought:
        moved: list[str] = []
        size = 0
        tried: set[str] = set()
        while True:
            remote = self._side.ledger.remote
            near, tied = self._near(use)
            strict = ((use.strict | tied) & remote.keys()) - tried
            soft = near - strict - tried
            if not strict and not soft:
                return tuple(moved), size
            for names, must in ((strict, True), (soft, False)):
                if names:
                    got, more = self._fetch_or_show(sorted(names), must, progress)
                    moved += got
                    size += more
            tried |= strict | soft

    def _fetch_or_show(self, names: list[str], must: bool, progress: Progress | None) -> Brought:
        """Fetch these; of what home's memory does not hold bring the structure, if it has one."""
        try:
            return self.fetch(names, strict=must, progress=progress)
        except GPULeaseError as error:
            if error.reason != "too_big_for_home":
                raise
            if len(names) == 1:
                if names[0] in self._side.ns or self.structures.show(names[0]):
                    return (), 0
                raise
        each = [self._fetch_or_show([name], must, progress) for name in names]
        return tuple(n for got, _ in each for n in got), sum(size for _, size in each)

    def _near(self, use: Use) -> tuple[set[str], set[str]]:
        """Return what is there and may be read, and what the cell's values share a part with."""
        side = self._side
        remote = side.ledger.remote
        near = use.reads | (remote.keys() & builtin_names())
        survey = side.survey(name for name in near if name in side.ns)
        roots = side.closure(near, survey, reads=True)
        tied = side.ties.of(roots) & remote.keys()
        if use.unbounded or any(group.unbounded for group in survey.groups):
            return set(remote), tied
        return {root[2:] for root in roots if root.startswith("n:")} & remote.keys(), tied

    def fetch(
        self, names: Sequence[str], *, strict: bool, progress: Progress | None = None
    ) -> Brought:
        """Bring these names; with ``strict`` raises why one cannot come."""
        if strict:
            for name in names:
                self._unavailable.check_name(name)
        body = {"names": list(names), "strict": strict}
        left = _TRIES
        while left:
            arrival = Arrival.of(self._peer.ask("fetch", body, progress=progress))
            moved, ok = self._arrivals.accept(arrival)
            left = 0 if ok else left - 1 + self._arrivals.comes_sealed
        remote = self._side.ledger.remote
        missing = [n for n in names if n in remote]
        if strict and missing:
            why = remote[missing[0]].blocker or "it does not load in your notebook"
            raise cannot_move(missing[0], why, Place.GPU)
        return moved, arrival.incoming.nbytes

    def result(self, execution_count: int, fetch: Callable[[list[str]], object]) -> Any:
        """Bring the value of a GPU cell's result; ``fetch`` brings one that has a name.

        Raises ``no_result`` where there is none.
        """
        side = self._side
        reply = self._peer.ask("result", {"cell": execution_count})
        if not reply.body["known"]:
            raise GPULeaseError("no_result", f"Cell [{execution_count}] left no result to fetch.")
        name = str(reply.body["name"])
        if name:
            return self._named(name, fetch)
        outcome = side.receive(Incoming.decode(reply.body, reply.blobs))
        self._arrivals.acknowledge(str(reply.body["shipment"]), outcome, 0)
        pseudo = f"Out[{execution_count}]"
        if pseudo not in side.ns:
            reason = next(iter(outcome.failed.values()), "it does not load in your notebook")
            raise cannot_move(pseudo, reason, Place.GPU)
        value = side.ns.pop(pseudo)
        side.ledger.differ([name_root(pseudo)])
        side.ledger.unagreed.discard(pseudo)
        if execution_count == LAST_ERROR and isinstance(value[0], str):
            error = self._named(value[0], fetch)
            return error, value[1]
        return value

    def _named(self, name: str, fetch: Callable[[list[str]], object]) -> Any:
        if name not in self._side.ns:
            fetch([name])
        return self._side.ns[name]
