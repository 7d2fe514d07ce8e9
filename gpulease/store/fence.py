"""One writer at a time, on the database that it left.

The fence has two halves: a lock that dies with its process (so that after ``kill -9`` the next one
takes over at once), and an epoch that every write checks (so that a writer who lost the lock
unnoticed cannot write any more).  A database that was deleted, replaced or restored under a running
service looks healthy but lacks what is granted now.  So the writer compares before each
transaction: the file itself (SQLite), the installation's name, the epoch, and a number that counts
the write transactions.  A backup has fewer of them, wherever it comes from.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.orm import Session

from gpulease.errors import GPULeaseError
from gpulease.store.engine import sqlite_path
from gpulease.store.models import MetaRow

#: Key of PostgreSQL's advisory lock: "gpulease" as a number.
LOCK_KEY = int.from_bytes(b"gpulease", "big", signed=True)


class WriterLock(Protocol):
    """Held by the one process that writes."""

    def held(self) -> bool:
        """Called at each heartbeat: whether the lock is still this process's."""

    def release(self) -> None:
        """Called at shutdown; a second call does nothing."""


def writer_lock(engine: sa.Engine) -> WriterLock:
    """Take the lock.

    Raises:
        GPULeaseError: ``store_in_use``: another writer has it.
    """
    path = sqlite_path(engine)
    return _Advisory(engine) if path is None else _FileLock(path)


def in_use() -> GPULeaseError:
    """Return the error for the second writer."""
    return GPULeaseError(
        "store_in_use",
        "Another lease service writes to this database.",
        next_step="Stop the other service first; there can be one at a time.",
    )


def fenced(own: int, found: int | None) -> GPULeaseError:
    """Return the error for a writer that another one has replaced."""
    return GPULeaseError(
        "store_fenced",
        "Another lease service has taken over this database; this one writes no more.",
        next_step="Stop this service.",
        numbers={"own_epoch": own, "epoch": found},
    )


class _FileLock:
    """Exclusive locks that the kernel drops with the process.

    On a file beside the database, for who puts another database in its place; and on the database
    itself, for who deletes the file beside it.  SQLite's own locks are of another kind and do not
    meet these.
    """

    def __init__(self, database: Path) -> None:
        self._files: list[int] = []
        try:
            for path in (database.with_name(database.name + ".lock"), database):
                self._files.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
                fcntl.flock(self._files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise in_use() from error
        except OSError as error:
            self.release()
            raise GPULeaseError(
                "store_unavailable",
                f"The lock of the database cannot be taken: {error.strerror}.",
                next_step="Give the service the right to write in the database's directory.",
            ) from error

    def held(self) -> bool:
        return bool(self._files)

    def release(self) -> None:
        while self._files:
            os.close(self._files.pop())


class _Advisory:
    """PostgreSQL's session lock on a connection of its own."""

    def __init__(self, engine: sa.Engine) -> None:
        # Outside the pool: the connection must live as long as the lock.
        self._connection: sa.Connection | None = engine.connect().execution_options(
            isolation_level="AUTOCOMMIT"
        )
        self._connection.detach()
        taken = self._connection.scalar(sa.select(sa.func.pg_try_advisory_lock(LOCK_KEY)))
        if not taken:
            self.release()
            raise in_use()

    def held(self) -> bool:
        if self._connection is None:
            return False
        try:
            # Bigint keys are shown as two halves.
            return bool(
                self._connection.scalar(
                    sa.text(
                        "select count(*) from pg_locks where locktype = 'advisory'"
                        " and pid = pg_backend_pid() and granted"
                    )
                )
            )
        except sa.exc.SQLAlchemyError:
            # The session is gone and its lock with it; a reconnected one would not have it.
            self._close()
            return False

    def release(self) -> None:
        """Give the lock back now: the server notices some time later that a session was closed."""
        if self._connection is not None:
            with suppress(sa.exc.SQLAlchemyError):
                self._connection.execute(sa.select(sa.func.pg_advisory_unlock(LOCK_KEY)))
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_NAMES = ("instance_id", "epoch", "writes")
#: When a writer of this database was there last.
_BEAT = "beat"
#: Made once: they are part of every transaction that writes.
_META = MetaRow.metadata.tables[MetaRow.__tablename__]
_STATE = sa.select(_META.c.name, _META.c.value).where(_META.c.name.in_(_NAMES)).with_for_update()
_COUNT = _META.update().where(_META.c.name == "writes").values(value=sa.bindparam("number"))


class Continuity:
    """What one writer knows of its database."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file = _identity(path) if path is not None else None
        self._broken: GPULeaseError | None = None
        self._writes = 0
        self._unsure: int | None = None  # a commit that may or may not have happened
        self.instance_id = ""
        self.epoch = 0
        self.last_beat: datetime | None = None

    def take_over(self, session: Session) -> None:
        """Raise the epoch: an earlier writer can write no more."""
        first = {"instance_id": secrets.token_hex(8), "epoch": "0", "writes": "0"}
        for name in _NAMES:
            row = session.get(MetaRow, name, with_for_update=True)
            if row is None:
                row = MetaRow(name=name, value=first[name])
                session.add(row)
            if name == "epoch":
                row.value = str(int(row.value) + 1)
                self.epoch = int(row.value)
            elif name == "writes":
                self._writes = int(row.value)
            else:
                self.instance_id = row.value
        beat = session.get(MetaRow, _BEAT)
        self.last_beat = datetime.fromisoformat(beat.value) if beat is not None else None

    def beat(self, session: Session, now: datetime) -> None:
        """Note that this writer is there, for the one that comes after it."""
        session.merge(MetaRow(name=_BEAT, value=now.isoformat()))

    def require_same_file(self) -> None:
        """Say when the file is another one by now; called before each transaction.

        Raises:
            GPULeaseError: ``store_replaced``.
        """
        if self._broken is not None:
            raise self._broken
        if self._path is None:
            return
        found = _identity(self._path)
        if found != self._file:
            raise _replaced("its file was deleted" if found is None else "its file is another one")

    def begin(self, session: Session) -> None:
        """Compare, inside a writing transaction, and count it.

        The row lock makes a writer that takes over wait for this transaction, and no longer.

        Raises:
            GPULeaseError: ``store_fenced`` or ``store_replaced``.
        """
        connection = session.connection()
        found = {row.name: row.value for row in connection.execute(_STATE)}
        epoch = int(found.get("epoch", 0))
        if found.get("instance_id") != self.instance_id:
            raise self._break("it is of another installation")
        if epoch > self.epoch:
            raise fenced(self.epoch, epoch)
        writes = int(found.get("writes", -1))
        if epoch < self.epoch or writes not in (self._writes, self._unsure):
            raise self._break("it is in a state from before")
        self._writes, self._unsure = writes, writes + 1
        connection.execute(_COUNT, {"number": str(writes + 1)})

    def committed(self) -> None:
        """Note that the transaction that began last was committed."""
        if self._unsure is not None:
            self._writes, self._unsure = self._unsure, None

    def _break(self, why: str) -> GPULeaseError:
        """Remember it: the tables may fit again by chance, and are still not ours."""
        self._broken = _replaced(why)
        return self._broken


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 (before each transaction; a Path costs more)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _replaced(why: str) -> GPULeaseError:
    return GPULeaseError(
        "store_replaced",
        f"The lease database is not as this service left it: {why}. Nothing is granted or taken "
        "back; running leases go on.",
        next_step="Put the right database back. If it was restored on purpose, start the service"
        " again: what runs and is not in it is adopted.",
    )
