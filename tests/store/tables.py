"""Databases with this version's tables in them, which the migrations make once in each process."""

import functools
import tempfile
from pathlib import Path

from gpulease.store import upgrade
from tests.store.postgresql import PostgreSQL

#: The database of a PostgreSQL that others are copies of.
TEMPLATE = "tables"


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
    """Return the address of a new database of a PostgreSQL with the tables in it."""
    if not cluster.has_template:
        upgrade(cluster.database(TEMPLATE))
        cluster.has_template = True
    return cluster.database(template=TEMPLATE)
