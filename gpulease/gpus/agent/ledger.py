"""Batches that the service has not taken yet, on disk for a day; and the faults, over restarts.

A batch has a sequence number, is written before it is posted, and is removed when the service has
it.  The ledger's size is bounded, and a file that cannot be used does not stop the agent.
"""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from gpulease.gpus.agent.health import Fault
from gpulease.policy.quarantine import Incident
from gpulease.protocol.agents import AgentBatch

T = TypeVar("T")
Store = sqlite3.Connection

log = logging.getLogger(__name__)

#: Seconds and bytes (packed) of batches that are kept for a service that is away.
AGE_MAX = 86400.0
BYTES_MAX = 64 * 2**20
_TABLES = """
create table if not exists meta (key text primary key, value text not null);
create table if not exists batch (
  sequence integer primary key, at real not null, body blob not null);
create table if not exists fault (
  device text not null, kind text not null, at text not null, until text, xid integer);
"""


@dataclass(frozen=True)
class Waiting:
    """What waits for the service: how many batches, how many bytes, since when (epoch seconds)."""

    batches: int = 0
    bytes: int = 0
    since: float | None = None


class Backlog:
    """The agent's memory.

    Args:
        path: the file; ``None`` keeps everything in memory, for as long as the process lives.
        clock: seconds since the epoch.
        age_max: seconds that a batch is kept.
        bytes_max: bytes that all batches may take.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        clock: Callable[[], float] = time.time,
        age_max: float = AGE_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._clock = clock
        self._age_max, self._bytes_max = age_max, bytes_max
        self._lock = threading.Lock()
        #: Why nothing is on disk, "" while it is.
        self.problem = ""
        #: Batches given up for want of room or time, never taken by the service.
        self.dropped = 0
        self._store = self._open(path)
        #: Whose sequences these are.
        self.run = self._do(_run_of)

    def add(self, batch: AgentBatch) -> int:
        """Number a batch (its ``sequence`` is set) and keep it; return the number."""

        def work(store: Store) -> int:
            sequence = int(_meta(store, "sequence") or 0) + 1
            batch["sequence"] = sequence
            body = zlib.compress(json.dumps(batch, separators=(",", ":")).encode(), 1)
            _set_meta(store, "sequence", str(sequence))
            store.execute("insert into batch values (?, ?, ?)", (sequence, self._clock(), body))
            self._trim(store)
            return sequence

        return self._do(work)

    def next(self, most: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """Return the newest batch (it tells of now) and the oldest ones with it, as JSON.

        Args:
            most: how many at most.
            bytes_max: of JSON, all together; the newest comes in any case.
        """

        def work(store: Store) -> list[tuple[int, bytes]]:
            newest = "select sequence, body from batch order by sequence desc limit 1"
            oldest = "select sequence, body from batch order by sequence limit ?"
            return [*store.execute(newest), *store.execute(oldest, (most,))]

        found: dict[int, bytes] = {}
        room = bytes_max
        for sequence, body in self._do(work):
            text = zlib.decompress(body)
            room -= len(text)
            if found and (room < 0 or len(found) >= most):
                break
            found[sequence] = text
        return sorted(found.items())

    def remove(self, sequences: Iterable[int]) -> None:
        """Forget what the service has."""
        rows = [(each,) for each in sequences]
        self._do(lambda store: store.executemany("delete from batch where sequence = ?", rows))

    def waiting(self) -> Waiting:
        """Return how much waits."""
        query = "select count(*), coalesce(sum(length(body)), 0), min(at) from batch"
        return Waiting(*self._do(lambda store: store.execute(query).fetchone()))

    def faults(self) -> list[Fault]:
        """Return the faults that were written down last."""
        query = "select device, kind, at, until, xid from fault"
        return [
            Fault(device, Incident(kind, _instant(at), until and _instant(until), xid))
            for device, kind, at, until, xid in self._do(lambda store: list(store.execute(query)))
        ]

    def note(self, faults: Sequence[Fault]) -> None:
        """Write all faults down, in place of those before."""

        def work(store: Store) -> None:
            store.execute("delete from fault")
            for fault in faults:
                found = fault.incident
                until = found.until and found.until.isoformat()
                row = (fault.device, found.kind, found.at.isoformat(), until, found.xid)
                store.execute("insert into fault values (?, ?, ?, ?, ?)", row)

        self._do(work)

    def close(self) -> None:
        """Close the file; what waits is there next time."""
        with self._lock:
            self._store.close()

    def _do(self, work: Callable[[Store], T]) -> T:
        """Do one thing as a whole; a file that fails is given up for the memory."""
        with self._lock:
            try:
                with self._store:
                    return work(self._store)
            except sqlite3.Error as error:
                self._give_up(f"the ledger failed ({error}): nothing outlives this process")
            with self._store:
                return work(self._store)

    def _give_up(self, why: str) -> None:
        log.error("%s", why)
        self.problem = why
        self._store.close()
        self._store = _connect(":memory:")  # a new run: what was numbered before may come again
        with self._store:
            self.run = _run_of(self._store)

    def _open(self, path: Path | None) -> Store:
        if path is None:
            self.problem = "no directory was given: nothing outlives this process"
            return _connect(":memory:")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return _connect(str(path))
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                aside = path.with_suffix(".broken")
                log.warning("%s is no ledger (%s): it was moved to %s", path, error, aside)
                path.replace(aside)
                return _connect(str(path))
        except (OSError, sqlite3.Error) as error:
            self.problem = f"{path} cannot be used ({error}): nothing outlives this process"
            log.warning("%s", self.problem)
            return _connect(":memory:")

    def _trim(self, store: Store) -> None:
        """Give up what is too old, then the oldest until the rest fits."""
        stale = self._clock() - self._age_max
        self.dropped += store.execute("delete from batch where at < ?", (stale,)).rowcount
        size = "select coalesce(sum(length(body)), 0) from batch"
        first = "select sequence from batch order by sequence limit 20"
        while store.execute(size).fetchone()[0] > self._bytes_max:
            self.dropped += store.execute(f"delete from batch where sequence in ({first})").rowcount  # noqa: S608


def _run_of(store: Store) -> str:
    run = _meta(store, "run")
    if not run:
        run = secrets.token_hex(8)
        _set_meta(store, "run", run)
    return run


def _meta(store: Store, key: str) -> str:
    row = store.execute("select value from meta where key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


def _set_meta(store: Store, key: str, value: str) -> None:
    store.execute("insert or replace into meta values (?, ?)", (key, value))


def _connect(name: str) -> Store:
    # Worker threads use it one at a time, under the ledger's lock.
    store = sqlite3.connect(name, check_same_thread=False)
    try:
        store.execute("pragma journal_mode = wal")
        store.execute("pragma synchronous = normal")
        store.executescript(_TABLES)
    except sqlite3.Error:
        store.close()
        raise
    return store


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
