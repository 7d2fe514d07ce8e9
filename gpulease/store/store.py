"""The store: short synchronous transactions, called by the service in one worker thread.

Intent is written before it is performed, every change is an audit row, and there is one writer at a
time.  Each public method is one transaction: it happened whole or not at all.
Every method raises ``GPULeaseError`` ``store_unavailable`` (503) when the database cannot be used
(disk full, locked, gone) and ``store_replaced`` (503) when it is another one, every writing one
also ``store_fenced`` (503).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.errors import GPULeaseError
from gpulease.policy.model import Lease
from gpulease.store import fence, history, writing
from gpulease.store.database import require_head
from gpulease.store.engine import LOCK_WAIT, files_of, make_engine, sqlite_path, translated
from gpulease.store.fence import Continuity
from gpulease.store.models import (
    Change,
    IdempotencyKey,
    LeaseRow,
    MetaRow,
    PolicyRow,
    PolicyVersion,
    columns_of,
    from_json,
)
from gpulease.system.private_files import require_private

_POLICIES = sa.select(*columns_of(PolicyRow, PolicyVersion)).order_by(PolicyRow.version.desc())

P = ParamSpec("P")
R = TypeVar("R")


class Store:
    """The one writer of a lease database.  Made by ``Store.open``, not directly."""

    def __init__(self, engine: sa.Engine, lock: fence.WriterLock) -> None:
        self._reading = engine
        self._writing = engine.execution_options(writes=True)
        self._lock = lock
        self._continuity = Continuity(sqlite_path(engine))
        self._last_ticket: tuple[datetime, int] | None = None

    @classmethod
    def open(cls, address: str, *, lock_wait: float = LOCK_WAIT) -> Store:
        """Become the writer of the database at this SQLAlchemy URL.

        Raises:
            GPULeaseError: ``store_in_use``, ``store_behind``, ``store_ahead``, ``bad_database``,
                ``file_open_to_others``.
        """
        engine = make_engine(address, lock_wait=lock_wait)
        try:
            require_private(*files_of(engine))
            with translated():
                require_head(engine)
                lock = fence.writer_lock(engine)
        except BaseException:
            engine.dispose()
            raise
        store = cls(engine, lock)
        try:
            store._take_over()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Let the next writer in; a second call does nothing."""
        # In this order: closing any descriptor of a file gives up what SQLite locked of it.
        # https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_
        self._reading.dispose()
        self._lock.release()

    def check(self, now: datetime | None = None) -> None:
        """Say whether this process may still write; called at each heartbeat of the service.

        ``now``: note that it was there, for the writer that comes after it.

        Raises:
            GPULeaseError: ``store_fenced``, ``store_replaced`` or ``store_unavailable``.
        """
        if not self._lock.held():
            # The lock's connection broke.  Nobody else may have taken over: then it is ours again.
            self._lock.release()
            with translated():
                self._lock = fence.writer_lock(self._reading)
        with self._write() as session:
            if now is not None:
                self._continuity.beat(session, now)

    @property
    def last_beat(self) -> datetime | None:
        """When the writer before this one was there last; ``None`` where that is not known."""
        return self._continuity.last_beat

    @property
    def epoch(self) -> int:
        """How many writers this database has had, this one included."""
        return self._continuity.epoch

    def instance_id(self) -> str:
        """Return the name of this installation, the same for the database's whole life."""
        return self._continuity.instance_id

    def next_ticket(self, now: datetime) -> tuple[datetime, int]:
        """Return the next place in the queue; never before an older one, whatever the clock does.

        Costs a query the first time only: there is one writer.
        """
        if self._last_ticket is None:
            newest = sa.select(LeaseRow.record).order_by(LeaseRow.created.desc()).limit(100)
            with self._read() as session:
                tickets = [from_json(record).ticket for record in session.scalars(newest)]
            self._last_ticket = max(tickets, default=(now, 0))
        last_at, last_number = self._last_ticket
        self._last_ticket = max(now, last_at), last_number + 1
        return self._last_ticket

    def live(self) -> list[Lease]:
        """Return every lease that has not ended, and those ended whose nomination still counts."""
        with self._read() as session:
            return [from_json(record) for record in session.scalars(history.live_records())]

    def lease(self, lease_id: str) -> Lease | None:
        """Return one lease, ended or not."""
        with self._read() as session:
            row = session.get(LeaseRow, lease_id)
            return from_json(row.record) if row is not None else None

    def save(self, changes: Sequence[Change], now: datetime, plan: bytes | None = None) -> None:
        """Write leases, their audit rows and the plan that they are of, all or none.

        Raises:
            GPULeaseError: ``version_conflict`` (409): a lease is not as it was read;
                ``device_taken`` (409): a device belongs to another lease already;
                ``key_reused`` (422): the idempotency key was used for another change.
                The first two name all changes in conflict by lease in ``numbers["leases"]``.
        """
        with self._write() as session:
            writing.save(session, changes, now, plan)

    def remembered(self, key: IdempotencyKey, now: datetime) -> str | None:
        """Return the lease that the key was used for, ``None`` for a key that is new.

        Raises:
            GPULeaseError: ``key_reused`` (422): it was used for another change.
        """
        with self._read() as session:
            return writing.remembered(session, key, now)

    def policy(self, version: int | None = None) -> PolicyVersion | None:
        """Return one version of the policy, the newest by default."""
        query = _POLICIES if version is None else _POLICIES.where(PolicyRow.version == version)
        with self._read() as session:
            row = session.execute(query.limit(1)).first()
        return PolicyVersion(*row) if row is not None else None

    def policy_versions(self, before: int | None = None, limit: int = 50) -> list[PolicyVersion]:
        """Return versions of the policy, newest first, those below ``before``."""
        query = _POLICIES if before is None else _POLICIES.where(PolicyRow.version < before)
        with self._read() as session:
            return [PolicyVersion(*row) for row in session.execute(query.limit(limit))]

    def policies_kept(self) -> int:
        """Return how many versions of the policy there are; the oldest go with time."""
        with self._read() as session:
            return session.scalar(sa.select(sa.func.count(PolicyRow.version))) or 0

    def save_policy(
        self, text: str, who: str, now: datetime, *, note: str = "", expected: int | None = None
    ) -> int:
        """Save a new version and return its number.

        Args:
            text: the document, validated by the caller.
            who: who saves it.
            now: when.
            note: what they said about it.
            expected: the version they edited; another newest one refuses the save.

        Raises:
            GPULeaseError: ``policy_changed`` (409): somebody saved another version meanwhile.
        """
        with self._write() as session:
            newest = session.scalar(sa.select(sa.func.max(PolicyRow.version))) or 0
            if expected is not None and expected != newest:
                raise GPULeaseError(
                    "policy_changed",
                    f"The policy is at version {newest} now; you edited version {expected}.",
                    next_step="Load the newest version and make your change again.",
                    numbers={"newest": newest, "edited": expected},
                )
            session.add(PolicyRow(version=newest + 1, text=text, who=who, at=now, note=note))
        return newest + 1

    def noted(self, name: str) -> str:
        """Return what the service wrote down under a name, "" for nothing."""
        with self._read() as session:
            row = session.get(MetaRow, f"note:{name}")
            return row.value if row is not None else ""

    def note(self, name: str, text: str) -> None:
        """Write something down that the service must find again after a restart."""
        with self._write() as session:
            session.merge(MetaRow(name=f"note:{name}", value=text))

    def read(self, work: Callable[Concatenate[Session, P], R], *args: P.args, **kw: P.kwargs) -> R:
        """Return what one of this room's reading functions finds, such as ``history.page``."""
        with self._read() as session:
            return work(session, *args, **kw)

    def write(self, work: Callable[Concatenate[Session, P], R], *args: P.args, **kw: P.kwargs) -> R:
        """Run one of this room's writing functions as a transaction: ``retention.sweep``."""
        with self._write() as session:
            return work(session, *args, **kw)

    def _take_over(self) -> None:
        with translated(), Session(self._writing) as session, session.begin():
            self._continuity.take_over(session)

    @contextmanager
    def _read(self) -> Iterator[Session]:
        self._continuity.require_same_file()
        with translated(), Session(self._reading) as session:
            yield session

    @contextmanager
    def _write(self) -> Iterator[Session]:
        self._continuity.require_same_file()
        with translated(), Session(self._writing) as session:
            with session.begin():
                self._continuity.begin(session)
                yield session
            self._continuity.committed()
