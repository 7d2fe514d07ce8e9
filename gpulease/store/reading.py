"""Looks into a database that need not be ours: a service may run on it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gpulease.store import people, plans, used
from gpulease.store.engine import make_engine
from gpulease.store.faults import translated
from gpulease.store.migrate import require_head


def export(address: str, user: str) -> dict[str, Any]:
    """Return all that a database holds about a person, also while the service runs.

    Raises:
        GPULeaseError: ``bad_database``, ``store_unavailable``, ``store_behind``, ``store_ahead``.
    """
    with _reading(address) as session:
        return people.export(session, user)


def read_past(address: str, since: datetime, until: datetime) -> used.Past:
    """Return what ``Store.past`` does, also while the service runs.

    Raises:
        GPULeaseError: ``bad_database``, ``store_unavailable``, ``store_behind``, ``store_ahead``.
    """
    with _reading(address) as session:
        return used.past(session, since, until)


def read_last_plan(address: str) -> dict[str, Any] | None:
    """Return the newest plan that is kept, also while the service runs.

    Raises:
        GPULeaseError: ``bad_database``, ``store_unavailable``, ``store_behind``, ``store_ahead``.
    """
    with _reading(address) as session:
        return plans.newest(session)


def read_last_site(address: str) -> dict[str, Any] | None:
    """Return the policy and the devices of the newest plans, also while the service runs.

    Raises:
        GPULeaseError: ``bad_database``, ``store_unavailable``, ``store_behind``, ``store_ahead``.
    """
    with _reading(address) as session:
        return plans.newest_site(session)


@contextmanager
def _reading(address: str) -> Iterator[Session]:
    """Read a database, whether or not the service runs; raises as those who call it say."""
    engine = make_engine(address)
    try:
        with translated():
            require_head(engine)
            with Session(engine) as session:
                yield session
    finally:
        engine.dispose()
