"""Opens the database: one engine with the settings that both kinds need.

Addresses, time-outs and how a transaction begins; and what a database's failure means to a person.
That sentence never holds the address (it may carry a password) nor the parameters of a statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, make_url

from gpulease.errors import GPULeaseError
from gpulease.system.private_files import make_private

#: How long (seconds) a statement waits for somebody else's lock before the store says so.
LOCK_WAIT = 3.0


def make_engine(address: str, *, lock_wait: float = LOCK_WAIT, may_make: bool = False) -> sa.Engine:
    """Return an engine for a SQLAlchemy URL.

    Args:
        address: the URL.
        lock_wait: how long (seconds) a statement waits for somebody else's lock.
        may_make: whether a SQLite file that is not there is made.

    Raises:
        GPULeaseError: ``bad_database`` for an address that cannot be used, such as a file's that is
            not there.
    """
    url = _url(address)
    if url.get_backend_name() == "sqlite":
        path = Path(url.database or "")
        if may_make:
            _make(path)
        elif not path.exists():
            raise GPULeaseError(
                "bad_database",
                f"There is no database {path}.",
                next_step="Name one that is there, or make a new one by"
                " `gpulease db upgrade --database URL`.",
            )
        return _sqlite(url, lock_wait)
    milliseconds = int(lock_wait * 1000)
    options = f"-c lock_timeout={milliseconds} -c statement_timeout={milliseconds + 10000}"
    return sa.create_engine(
        url,
        hide_parameters=True,
        pool_pre_ping=True,
        pool_size=2,
        connect_args={"options": options, "connect_timeout": 5},
    )


def sqlite_path(engine: sa.Engine) -> Path | None:
    """Return the database file, or ``None`` for PostgreSQL."""
    if engine.dialect.name != "sqlite":
        return None
    return Path(engine.url.database or "").absolute()


def files_of(engine: sa.Engine) -> tuple[Path, ...]:
    """Return every file that a SQLite database consists of, there or not."""
    path = sqlite_path(engine)
    if path is None:
        return ()
    return tuple(path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", ".lock"))


def _url(address: str) -> URL:
    try:
        url = make_url(address)
    except sa.exc.ArgumentError as error:
        raise _bad("it is not a SQLAlchemy URL") from error
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise _bad(f"{url.get_backend_name()} is not supported")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise _bad("SQLite needs a file here: leases must survive a restart")
    return url


def _bad(why: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_database",
        f"The database address cannot be used: {why}.",
        next_step="Write sqlite:////path/gpulease.sqlite or postgresql://user@host/name.",
    )


def _make(path: Path) -> None:
    # SQLite would make it with the mode that the umask leaves, and its other files with the same.
    with suppress(OSError):  # whoever connects is told what is wrong with the place
        make_private(path)


def _sqlite(url: URL, lock_wait: float) -> sa.Engine:
    engine = sa.create_engine(url, hide_parameters=True, connect_args={"timeout": lock_wait})

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        # The driver's own transaction handling would leave DDL outside of them and begin too late.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        # A writer takes its lock at once: upgrading a reader's lock in the middle can deadlock.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


_CAUSES = (
    ("disk is full", "the disk that holds the database is full", "Free space on that disk."),
    ("no space left", "the disk that holds the database is full", "Free space on that disk."),
    ("is locked", "another process holds the database", "End the other process."),
    ("lock timeout", "another session holds the database", "End the other session."),
    ("readonly", "the database cannot be written", "Give the service the right to write it."),
    ("not a database", "the file is not a database", "Point the service at the right file."),
    (
        "unable to open",
        "its file cannot be opened",
        "Look whether the folder is there and may be written, and whether the path is a file.",
    ),
    (
        "password authentication",
        "PostgreSQL does not accept the user or the password",
        "Correct them in the address.",
    ),
    ("connection refused", "nothing answers at its address", "Start it, or correct the address."),
    ("no such table", "its tables are gone", "Put the right database back."),
    ("does not exist", "it or its tables are gone", "Put the right database back."),
    ("malformed", "the database file is damaged", "Restore it from a backup."),
)


#: PostgreSQL's code: the database was made again under the running service.
_UNDEFINED_TABLE = "42P01"


def unavailable(cause: str, next_step: str) -> GPULeaseError:
    """Return the error for a store that cannot be used at present."""
    return GPULeaseError(
        "store_unavailable",
        f"The lease database cannot be used at present: {cause}. Nothing was changed.",
        next_step=f"Try again in a minute. If it stays so, an administrator can help: {next_step}",
    )


@contextmanager
def translated() -> Iterator[None]:
    """Turn a database's failures into ``GPULeaseError`` (``store_unavailable``, 503).

    Programming errors (a wrong statement, a violated constraint) pass: they are ours.
    """
    try:
        yield
    except exc.IntegrityError:
        raise
    except exc.ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) != _UNDEFINED_TABLE:
            raise
        raise unavailable("its tables are gone", "Put the right database back.") from error
    except (exc.DBAPIError, exc.TimeoutError) as error:
        text = str(getattr(error, "orig", None) or error).lower()
        for sign, cause, next_step in _CAUSES:
            if sign in text:
                raise unavailable(cause, next_step) from error
        raise unavailable("it does not answer", "See the service's log.") from error
