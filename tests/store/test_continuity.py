"""A database that is deleted, replaced or restored under its writer is noticed."""

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpulease.errors import GPULeaseError
from gpulease.store import Store, upgrade
from tests.policy.build import NOW, request
from tests.store.test_leases import new, refused
from tests.store.test_one_writer import start_writer

NEEDED = ("", "-wal", "-shm", ".lock")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "leases.sqlite"
    old = os.umask(0)  # as careless as a process can be
    try:
        upgrade(f"sqlite:///{path}")
    finally:
        os.umask(old)
    return path


@pytest.fixture
def on_file(file: Path):
    store = Store.open(f"sqlite:///{file}")
    store.save([new(request(1))], NOW)
    yield store
    store.close()


def calls(store):
    return (store.check, store.live, lambda: store.save([new(request(2))], NOW))


def test_every_file_of_the_database_is_private(on_file, file):
    modes = {each.name: each.stat().st_mode & 0o777 for each in file.parent.iterdir()}
    assert modes == {file.name + suffix: 0o600 for suffix in NEEDED}


@pytest.mark.parametrize("suffix", NEEDED)
def test_a_database_that_others_can_read_is_refused(file, suffix):
    Path(f"{file}{suffix}").touch(0o600)
    Path(f"{file}{suffix}").chmod(0o640)
    refused("file_open_to_others", Store.open, f"sqlite:///{file}")


def test_a_deleted_file_is_noticed(on_file, file):
    file.rename(file.with_name("aside"))
    for call in calls(on_file):
        assert "deleted" in refused("store_replaced", call).sentence
    assert not file.exists(), "a new and empty one would forget every lease"
    file.with_name("aside").rename(file)
    assert [lease.id for lease in on_file.live()] == ["r1"], "it was put back"


def test_another_file_in_its_place_is_noticed(on_file, file):
    shutil.copy(file, file.with_name("copy"))
    file.with_name("copy").rename(file)
    for call in calls(on_file):
        assert "another" in refused("store_replaced", call).sentence


def copy(source: Path, target: Path) -> None:
    """Copy a database into another file's place without replacing the file: SQLite's own way."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new_one:
        old.backup(new_one)


def test_a_backup_restored_in_place_is_noticed(on_file, file):
    copy(file, file.with_name("backup"))
    on_file.save([new(request(2))], NOW)
    copy(file.with_name("backup"), file)
    assert "before" in refused("store_replaced", on_file.check).sentence
    refused("store_replaced", on_file.live)  # from then on nothing of it counts


def test_the_database_of_another_installation_is_noticed(store):
    with store._writing.begin() as connection:
        connection.execute(sa.text("update meta set value = 'x' where name = 'instance_id'"))
    refused("store_replaced", store.check)


def test_an_older_state_is_noticed(store):
    store.save([new(request(1))], NOW)
    with store._writing.begin() as connection:
        connection.execute(sa.text("update meta set value = '0' where name = 'writes'"))
    refused("store_replaced", store.save, [new(request(2))], NOW)


def test_tables_that_were_dropped_are_noticed(store):
    with store._writing.begin() as connection:
        connection.execute(sa.text("drop table meta"))
    assert "gone" in refused("store_unavailable", store.check).sentence


def test_a_write_that_failed_leaves_the_count_as_it_is(store):
    store.save([new(request(1))], NOW)
    refused("version_conflict", store.save, [new(request(1))], NOW)
    with suppress(ZeroDivisionError), store._write():
        1 / 0  # noqa: B018
    store.save([new(request(2))], NOW)
    store.check()


def test_a_commit_that_nobody_knows_of_is_taken_either_way(store):
    with pytest.raises(ConnectionError), store._write():
        # As a connection that breaks while the commit's answer is on its way.
        store._continuity.committed = lambda: (_ for _ in ()).throw(ConnectionError())
    del store._continuity.committed
    store.check()
    store.save([new(request(1))], NOW)
    store.check()


@pytest.mark.processes
def test_a_second_writer_is_refused_though_the_lock_file_is_gone(file):
    address = f"sqlite:///{file}"
    with start_writer(address) as other:
        assert other.stdout.readline().strip() == "1"
        Path(f"{file}.lock").unlink()
        refused("store_in_use", Store.open, address)
        other.stdin.close()
        other.wait(30)


@pytest.mark.processes
def test_a_second_writer_is_refused_though_another_database_is_in_its_place(file):
    address = f"sqlite:///{file}"
    with start_writer(address) as other:
        assert other.stdout.readline().strip() == "1"
        for suffix in ("", "-wal", "-shm"):
            Path(f"{file}{suffix}").unlink()
        with pytest.raises(GPULeaseError) as error:
            upgrade(address)
        assert error.value.reason == "store_in_use"
        other.stdin.close()
        other.wait(30)


def test_the_next_writer_learns_when_the_last_one_was_there(file):
    first = Store.open(f"sqlite:///{file}")
    assert first.last_beat is None
    first.check(NOW)
    first.check()
    first.close()
    second = Store.open(f"sqlite:///{file}")
    assert second.last_beat == NOW
    second.close()
