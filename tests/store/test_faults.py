"""A full disk, a locked or a broken database: a clear error, and nothing half-written."""

import sqlite3
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from gpulease.store import Store, upgrade
from tests.policy.build import NOW, request
from tests.store.test_leases import new, refused


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "leases.sqlite"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def on_file(file):
    store = Store.open(f"sqlite:///{file}", lock_wait=0.2)
    yield store
    store.close()


def test_a_full_disk(on_file):
    on_file.save([new(request(0))], NOW)
    with on_file._reading.connect() as connection:
        pages = connection.execute(sa.text("pragma page_count")).scalar_one()
        # The limit belongs to the connection; the pool hands the same one out again.
        connection.exec_driver_sql(f"pragma max_page_count = {pages}")
    many = [new(request(n, end_note="x" * 2000)) for n in range(1, 200)]
    error = refused("store_unavailable", on_file.save, many, NOW)
    assert error.status == 503
    assert "full" in error.sentence
    assert [lease.id for lease in on_file.live()] == ["r0"]
    with on_file._reading.connect() as connection:
        connection.exec_driver_sql("pragma max_page_count = 100000")
    on_file.save(many, NOW)
    assert len(on_file.live()) == 200


def test_a_locked_file(on_file, file):
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("begin immediate")
    error = refused("store_unavailable", on_file.save, [new(request(1))], NOW)
    assert "another process" in error.sentence
    assert on_file.live() == [], "readers are not kept waiting"
    other.rollback()
    on_file.save([new(request(1))], NOW)
    other.close()


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "leases.sqlite"
    path.write_bytes(b"a letter to my aunt" * 100)
    path.chmod(0o600)
    for call in (Store.open, upgrade):
        error = refused("store_unavailable", call, f"sqlite:///{path}")
        assert "not a database" in error.sentence
    assert path.read_bytes() == b"a letter to my aunt" * 100


def test_a_folder_that_is_not_there(tmp_path):
    refused("store_unavailable", upgrade, f"sqlite:///{tmp_path}/none/leases.sqlite")


def test_a_broken_file_is_said_to_be_broken(file):
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)
    error = refused("store_unavailable", Store.open, f"sqlite:///{file}")
    assert "damaged" in error.sentence


@pytest.mark.postgresql
def test_a_locked_table(cluster):
    address = cluster.database()
    upgrade(address)
    store = Store.open(address, lock_wait=0.2)
    with psycopg.connect(address) as other:
        other.execute("lock table leases in access exclusive mode")
        error = refused("store_unavailable", store.save, [new(request(1))], NOW)
        assert "another session" in error.sentence
    assert store.live() == []
    store.save([new(request(1))], NOW)
    store.close()


@pytest.mark.postgresql
def test_a_broken_connection_is_made_anew(cluster):
    address = cluster.database()
    upgrade(address)
    store = Store.open(address)
    cluster.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where pid <> pg_backend_pid() and backend_type = 'client backend'"
    )
    store.check()
    store.save([new(request(1))], NOW)
    store.close()


@pytest.mark.postgresql
def test_a_server_that_is_not_there(tmp_path):
    address = f"postgresql://gpulease@/leases?host={tmp_path}"
    refused("store_unavailable", Store.open, address)
