"""Brings a database to this version's tables, and refuses one that is not there.

The database's revision is compared with the code's.  All steps of one upgrade are one transaction:
a failed upgrade has changed nothing.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from gpulease.errors import GPULeaseError
from gpulease.store.engine import make_engine, translated
from gpulease.store.fence import writer_lock

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(address: str) -> None:
    """Create or migrate the tables; does nothing where they are this version's already.

    Raises:
        GPULeaseError: ``store_ahead``, ``store_in_use`` (the service runs), ``store_unavailable``,
            ``bad_database``.
    """
    engine = make_engine(address, may_make=True)
    try:
        with translated():
            if revision(engine) == head():
                return
            lock = writer_lock(engine)
            try:
                refuse_ahead(revision(engine))
                with engine.execution_options(writes=True).begin() as connection:
                    bring_to(connection, "head")
            finally:
                engine.dispose()  # before the lock's descriptor is closed: see ``Store.close``
                lock.release()
    finally:
        engine.dispose()


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
        status=500,
    )


def revision(engine: sa.Engine) -> str | None:
    """Return the database's revision, ``None`` where there are no tables."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head() -> str:
    """Return the revision that this code needs."""
    found = ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None, "there is a first migration"
    return found


def refuse_ahead(found: str | None) -> None:
    """Refuse what a newer gpulease made.

    Raises:
        GPULeaseError: ``store_ahead``.
    """
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if found is None or found in known:
        return
    raise GPULeaseError(
        "store_ahead",
        f"The lease database was made by a newer gpulease ({found}; this one knows {head()}).",
        next_step="Install the newer gpulease again, or restore the database from before.",
        numbers={"found": found, "known": head()},
        status=500,
    )


def _config() -> Config:
    config = Config()
    # Percent signs would be read as interpolation.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
