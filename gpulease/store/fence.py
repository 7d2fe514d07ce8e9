"""One writer at a time.

Owns the two halves of the fence: a lock that dies with its process (so that after ``kill -9`` the
next one takes over at once), and an epoch that every write checks (so that a writer who lost the
lock unnoticed cannot write any more).
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from gpulease.errors import GPULeaseError
from gpulease.store.engine import sqlite_path

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
        status=503,
    )


def fenced(own: int, found: int | None) -> GPULeaseError:
    """Return the error for a writer that another one has replaced."""
    return GPULeaseError(
        "store_fenced",
        "Another lease service has taken over this database; this one writes no more.",
        next_step="Stop this service.",
        numbers={"own_epoch": own, "epoch": found},
        status=503,
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
                status=503,
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
