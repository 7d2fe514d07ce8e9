"""A database as a whole: this version's tables, its backups, and looks into one that is not ours.

The database's revision is compared with the code's.  All steps of one upgrade are one transaction:
a failed upgrade has changed nothing.

A backup is every row of a database in one file, the same for SQLite and PostgreSQL.  It is read in
one transaction, so that the copy is consistent while the service writes.  The file is JSON lines,
compressed: a line that says what it is, a line for each row, a line with their number.  It holds no
secret, and what was copied from one kind of database can be restored into the other.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.orm import Session

from gpulease.errors import GPULeaseError
from gpulease.store.engine import make_engine, translated
from gpulease.store.fence import writer_lock
from gpulease.store.models import Base
from gpulease.system.private_files import whole_file

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(address: str) -> None:
    """Create or migrate the tables; does nothing where they are this version's already.

    Raises:
        GPULeaseError: ``store_ahead``, ``store_in_use`` (the service runs), ``store_unavailable``,
            ``bad_database``.
    """
    with _opened(address, may_make=True) as engine:
        if revision(engine) == head():
            return
        with _alone(engine):
            refuse_ahead(revision(engine))
            with engine.execution_options(writes=True).begin() as connection:
                bring_to(connection, "head")


@contextmanager
def _opened(address: str, *, may_make: bool = False) -> Iterator[sa.Engine]:
    """Open a database for one piece of work, with its failures in words."""
    engine = make_engine(address, may_make=may_make)
    try:
        with translated():
            yield engine
    finally:
        engine.dispose()


@contextmanager
def _alone(engine: sa.Engine) -> Iterator[None]:
    """Hold the lock of the one writer."""
    lock = writer_lock(engine)
    try:
        yield
    finally:
        engine.dispose()  # before the lock's descriptor is closed: see ``Store.close``
        lock.release()


def bring_to(connection: sa.Connection, wanted: str) -> None:
    """Create or migrate the tables to a revision, inside the connection's transaction."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, wanted)


def require_head(engine: sa.Engine) -> str:
    """Refuse a database whose tables are not this version's; return their revision.

    Raises:
        GPULeaseError: ``store_behind`` or ``store_ahead``.
    """
    found = revision(engine)
    if found is not None and found == head():
        return found
    refuse_ahead(found)
    raise GPULeaseError(
        "store_behind",
        "The lease database has no tables yet."
        if found is None
        else f"The lease database is of an older version ({found}; needed is {head()}).",
        next_step="Run `gpulease db upgrade --database URL`, then start the service again.",
        numbers={"found": found, "needed": head()},
    )


def revision(engine: sa.Engine) -> str | None:
    """Return the database's revision, ``None`` where there are no tables."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head() -> str:
    """Return the revision that this code needs."""
    found = _scripts(MIGRATIONS).get_current_head()
    assert found is not None, "there is a first migration"
    return found


def refuse_ahead(found: str | None) -> None:
    """Refuse what a newer gpulease made.

    Raises:
        GPULeaseError: ``store_ahead``.
    """
    known = {script.revision for script in _scripts(MIGRATIONS).walk_revisions()}
    if found is None or found in known:
        return
    raise GPULeaseError(
        "store_ahead",
        f"The lease database was made by a newer gpulease ({found}; this one knows {head()}).",
        next_step="Install the newer gpulease again, or restore the database from before.",
        numbers={"found": found, "known": head()},
    )


def _config() -> Config:
    config = Config()
    # Percent signs would be read as interpolation.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@functools.cache
def _scripts(_folder: Path) -> ScriptDirectory:
    """Return the migrations of a folder; reading them takes longer than asking the database."""
    return ScriptDirectory.from_config(_config())


_FORMAT = 1
_ROWS = 1000


def backup(address: str, file: Path) -> int:
    """Write every row of the database to ``file`` (mode 0600, whole or not at all).

    Returns the number of rows.

    Raises:
        GPULeaseError: ``file_exists``, ``store_unavailable``, ``store_behind``, ``store_ahead``.
        OSError: the file cannot be written.
    """
    if file.exists():
        raise GPULeaseError(
            "file_exists",
            f"{file} is there already.",
            next_step="Name a new file: a backup replaces nothing.",
        )
    with (
        _opened(address) as engine,
        whole_file(file) as raw,
        gzip.open(raw, "wt", encoding="utf-8", compresslevel=6) as text,
    ):
        revision = require_head(engine)
        with engine.connect() as connection:
            return _write(_snapshot(connection), text, revision)


def restore(address: str, file: Path, *, replace: bool = False) -> int:
    """Fill the database from a backup, in one transaction; return the number of rows.

    The service must not run.  A backup of an older version is brought to this one's tables.

    Raises:
        GPULeaseError: ``bad_backup``, ``store_ahead``; ``store_in_use`` (the service runs);
            ``store_not_empty``: it has leases, and ``replace`` does not say that they may go.
        OSError: the file cannot be read.
    """
    with gzip.open(file, "rt", encoding="utf-8") as text:
        lines = _lines(text)
        head = next(lines, None)
        if not isinstance(head, dict) or head.get("gpulease_backup") != _FORMAT:
            raise _bad("it is none that this gpulease knows")
        refuse_ahead(head.get("revision"))
        with (
            _opened(address, may_make=True) as engine,
            _alone(engine),
            engine.execution_options(writes=True).begin() as connection,
        ):
            _clear(connection, replace=replace)
            bring_to(connection, head["revision"])
            rows = _fill(connection, lines)
            bring_to(connection, "head")
    return rows


def _snapshot(connection: sa.Connection) -> sa.Connection:
    """Make all reads of this connection see one state."""
    if connection.dialect.name == "postgresql":
        connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return connection


def _write(connection: sa.Connection, text: IO[str], revision: str) -> int:
    def line(value: Any) -> None:
        text.write(json.dumps(value, default=_text) + "\n")

    line({"gpulease_backup": _FORMAT, "revision": revision, "at": datetime.now(UTC)})
    rows = 0
    for table in Base.metadata.sorted_tables:
        found = connection.execution_options(yield_per=_ROWS).execute(sa.select(table))
        for row in found.mappings():
            line([table.name, dict(row)])
            rows += 1
    line({"rows": rows})
    return rows


def _text(value: datetime | bytes) -> str:
    return value.isoformat() if isinstance(value, datetime) else base64.b64encode(value).decode()


def _lines(text: IO[str]) -> Iterator[Any]:
    try:
        for line in text:
            yield json.loads(line)
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _bad("it is damaged or was cut off") from error


def _clear(connection: sa.Connection, *, replace: bool) -> None:
    found = sa.MetaData()
    found.reflect(connection)
    leases = found.tables.get("leases")
    if leases is not None and not replace:
        number = connection.scalar(sa.select(sa.func.count()).select_from(leases))
        if number:
            raise GPULeaseError(
                "store_not_empty",
                f"The database holds {number} leases, which would be lost.",
                next_step="Name an empty database, or say --replace.",
                numbers={"leases": number},
            )
    found.drop_all(connection)


def _fill(connection: sa.Connection, lines: Iterator[Any]) -> int:
    # By the tables as they are then: the models are of a newer version, perhaps.
    tables = sa.MetaData()
    tables.reflect(connection)
    waiting: list[dict[str, Any]] = []
    name = ""
    for rows, line in enumerate(lines):
        if isinstance(line, dict):
            if line.get("rows") != rows:
                raise _bad("rows are missing")
            _insert(connection, tables, name, waiting)
            _count_on(connection, tables)
            return rows
        if line[0] != name or len(waiting) >= _ROWS:
            _insert(connection, tables, name, waiting)
            waiting, name = [], line[0]
        waiting.append(line[1])
    raise _bad("its end is missing")


def _insert(
    connection: sa.Connection, tables: sa.MetaData, name: str, rows: list[dict[str, Any]]
) -> None:
    if not rows:
        return
    table = tables.tables.get(name)
    if table is None:
        raise _bad(f"it has a table {name} that its version does not know")
    times = [each.name for each in table.columns if isinstance(each.type, sa.DateTime)]
    raw = [each.name for each in table.columns if isinstance(each.type, sa.LargeBinary)]
    for row in rows:
        for column in times:
            if row.get(column) is not None:
                row[column] = datetime.fromisoformat(row[column])
        for column in raw:
            row[column] = base64.b64decode(row[column])
    connection.execute(sa.insert(table), rows)


def _count_on(connection: sa.Connection, tables: sa.MetaData) -> None:
    """Let PostgreSQL continue counting after the ids that were restored."""
    if connection.dialect.name != "postgresql":
        return
    for table in tables.sorted_tables:
        if "id" in table.c and isinstance(table.c["id"].type, sa.Integer):
            newest = connection.scalar(sa.select(sa.func.max(table.c["id"])))
            if newest is not None:
                sequence = sa.func.pg_get_serial_sequence(table.name, "id")
                connection.execute(sa.select(sa.func.setval(sequence, newest)))


def _bad(why: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_backup",
        f"The backup cannot be restored: {why}. Nothing was changed.",
        next_step="Restore another backup.",
    )


@contextmanager
def reading(address: str) -> Iterator[Session]:
    """Read a database with the statements of this room, also while the service runs.

    Raises:
        GPULeaseError: ``bad_database``, ``store_unavailable``, ``store_behind``, ``store_ahead``.
    """
    with _opened(address) as engine:
        require_head(engine)
        with Session(engine) as session:
            yield session
