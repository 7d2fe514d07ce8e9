"""A store on each kind of database: a SQLite file, and a private PostgreSQL that runs a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpulease.store import Store
from tests.store.postgresql import PostgreSQL, postgresql
from tests.store.tables import lay_tables, with_tables

#: Where the two kinds differ: locks, and what breaks.  Elsewhere PostgreSQL has to take the same
#: statements, and `make test-processes` starts a server for that.
BOTH_KINDS = {"test_continuity", "test_faults", "test_one_writer"}


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("postgresql") and item.path.stem not in BOTH_KINDS:
        item.add_marker(pytest.mark.processes)


@pytest.fixture(scope="session")
def cluster() -> Iterator[PostgreSQL]:
    with postgresql() as running:
        yield running


KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]


@pytest.fixture(params=KINDS)
def empty_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/leases.sqlite"
    address: str = request.getfixturevalue("cluster").database()
    return address


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database of each kind with the tables in it."""
    if request.param == "sqlite":
        return lay_tables(tmp_path / "leases.sqlite")
    return with_tables(request.getfixturevalue("cluster"))


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    opened = Store.open(address, lock_wait=0.3)
    yield opened
    opened.close()
