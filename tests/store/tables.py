"""Databases with this version's tables in them, which the migrations make once in each process."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite as SQLite

from gpulease.store import people, reading, upgrade
from gpulease.store.models import Base

if TYPE_CHECKING:
    from tests.store.postgresql import PostgreSQL

#: The database of a PostgreSQL that others are copies of.
TEMPLATE = "tables"
#: What SQLAlchemy makes of each statement: a third of what opening a database takes.
COMPILED: dict[Any, Any] = {}
#: What says of a PostgreSQL's database that it is like another one: columns, version, first rows.
_LOOKS = (
    "select table_name, column_name, data_type from information_schema.columns"
    " where table_schema = 'public' order by 1, 2",
    "select version_num from alembic_version",
    "select name, value from meta",
)
_ALONE = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and pid != pg_backend_pid()"
)
# It is kept for one dialect, of which each engine has one of its own, all alike.
SQLite.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
SQLite.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]


@event.listens_for(Engine, "engine_connect")
def _compiles_once(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        connection.execution_options(compiled_cache=COMPILED)


def export(address: str, user: str) -> dict[str, Any]:
    """Return what ``gpulease admin export`` does."""
    with reading(address) as session:
        return people.export(session, user)


@functools.cache
def _sqlite() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        upgrade(f"sqlite:///{folder}/empty.sqlite")
        return Path(folder, "empty.sqlite").read_bytes()


def lay_tables(file: Path) -> str:
    """Make a SQLite file with the tables where there is none; return its address."""
    if not file.exists():
        file.touch(0o600)
        file.write_bytes(_sqlite())
    return f"sqlite:///{file}"


def with_tables(cluster: PostgreSQL) -> str:
    """Return the address of a database of a PostgreSQL with the tables in it.

    One is emptied for each test, which takes less than making it, unless a test changed its tables.
    """
    if TEMPLATE not in cluster.looks:
        upgrade(cluster.database(TEMPLATE))
        with cluster.connected(TEMPLATE) as connection:
            cluster.looks[TEMPLATE] = [connection.execute(each).fetchall() for each in _LOOKS]
    if not cluster.emptied or not _empty(cluster):
        cluster.emptied = f"t{uuid4().hex}"
        cluster.database(cluster.emptied, template=TEMPLATE)
    return cluster.address(cluster.emptied)


def _empty(cluster: PostgreSQL) -> bool:
    """Take out what a test wrote; tell whether the tables are still those of the template."""
    columns, version, meta = cluster.looks[TEMPLATE]
    with cluster.connected(cluster.emptied) as connection:
        connection.execute(_ALONE)
        for look, wanted in zip(_LOOKS, (columns, version), strict=False):
            if connection.execute(look).fetchall() != wanted:
                return False
        tables = [table.name for table in reversed(Base.metadata.sorted_tables)]
        connection.execute("; ".join(f"delete from {table}" for table in tables))
        connection.execute("select setval(oid, 1, false) from pg_class where relkind = 'S'")
        for row in meta:
            connection.execute("insert into meta (name, value) values (%s, %s)", row)
    return True
