"""What a database's failure means to a person.

Owns the translation of SQLAlchemy's exceptions into the one that reaches people.  The sentence
never holds the address (it may carry a password) nor the parameters of a statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from gpulease.errors import GPULeaseError

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
        "Mend them in the address.",
    ),
    ("connection refused", "nothing answers at its address", "Start it, or mend the address."),
    ("no such table", "its tables are gone", "Put the right database back."),
    ("does not exist", "it or its tables are gone", "Put the right database back."),
    ("malformed", "the database file is damaged", "Restore it from a backup."),
)


#: PostgreSQL's code: the database was made anew under the running service.
_UNDEFINED_TABLE = "42P01"


def unavailable(cause: str, next_step: str) -> GPULeaseError:
    """Return the error for a store that cannot be used at present."""
    return GPULeaseError(
        "store_unavailable",
        f"The lease database cannot be used at present: {cause}. Nothing was changed.",
        next_step=f"Try again in a minute. If it stays so, an administrator can help: {next_step}",
        status=503,
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
