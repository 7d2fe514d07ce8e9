"""Backups are consistent while somebody writes, and come back whole, in either kind of database."""

import gzip
import json
import shutil
import threading

import pytest
import sqlalchemy as sa

from gpulease.policy.model import Verdict
from gpulease.store import (
    EvidenceMinute,
    Store,
    VerdictChange,
    backup,
    database,
    restore,
    writing,
)
from gpulease.store.engine import make_engine
from gpulease.store.models import Base
from tests.policy.build import NOW
from tests.policy.build import request as lease_of
from tests.store.test_leases import new, refused
from tests.store.test_retention import ended, watched


def content(address: str) -> dict[str, list]:
    """Return every row, but for how often the database was opened and written."""
    engine = make_engine(address)
    with engine.connect() as connection:
        found = {
            table.name: [
                tuple(row)
                for row in connection.execute(sa.select(table).order_by(*table.primary_key.columns))
                if row[0] not in ("epoch", "writes")
            ]
            for table in Base.metadata.sorted_tables
        }
    engine.dispose()
    return found


@pytest.fixture
def filled(address: str) -> str:
    store = Store.open(address)
    store.save([new(lease_of(1, groups=("cs101", "ümlaut"))), new(ended("old", NOW))], NOW)
    watched(store, "r1", NOW, 3)
    store.save_policy("a: 1", "ann", NOW, note="first")
    store.close()
    return address


def test_a_backup_comes_back_whole_in_either_kind(filled, tmp_path, request):
    before = content(filled)
    rows = backup(filled, tmp_path / "b")
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
    others = [f"sqlite:///{tmp_path}/other.sqlite"]
    if not filled.startswith("sqlite"):
        others.append(request.getfixturevalue("cluster").database())
    for other in others:
        assert restore(other, tmp_path / "b") == rows > 10
        assert content(other) == before
        store = Store.open(other)
        assert [lease.id for lease in store.live()] == ["r1"]
        # The counting of rows goes on behind those that were restored.
        store.save([new(lease_of(2))], NOW)
        changed = [VerdictChange("r2", NOW, Verdict.IDLE)]
        store.write(writing.add_evidence, changed, [EvidenceMinute("r2", NOW)])
        store.close()


def test_a_backup_of_a_database_that_is_written_to_is_one_state(filled, tmp_path):
    store = Store.open(filled)
    stop, written = threading.Event(), []

    def write() -> None:
        n = 10
        while not stop.is_set() and n < 300:
            # A lease and its audit row are one transaction; a backup has both or neither.
            store.save([new(lease_of(n))], NOW)
            written.append(n)
            n += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for n in range(3):
            while len(written) < 10 * n and writer.is_alive():
                stop.wait(0.01)
            backup(filled, tmp_path / f"b{n}")
    finally:
        stop.set()
        writer.join()
        store.close()
    for n in range(3):
        target = f"sqlite:///{tmp_path}/{n}.sqlite"
        restore(target, tmp_path / f"b{n}")
        found = content(target)
        assert len({row[0] for row in found["leases"]}) == len(
            {row[1] for row in found["transitions"]}
        )
    assert len(found["leases"]) > 2, "it was written to meanwhile"


def test_nothing_is_replaced_unasked(filled, tmp_path):
    backup(filled, tmp_path / "b")
    refused("file_exists", backup, filled, tmp_path / "b")
    before = content(filled)
    assert refused("store_not_empty", restore, filled, tmp_path / "b").numbers == {"leases": 2}
    assert content(filled) == before
    store = Store.open(filled)
    store.save([new(lease_of(3))], NOW)
    refused("store_in_use", restore, filled, tmp_path / "b", replace=True)
    store.close()
    restore(filled, tmp_path / "b", replace=True)
    assert content(filled) == before


def test_a_spoiled_backup_changes_nothing(filled, tmp_path):
    backup(filled, tmp_path / "b")
    good = (tmp_path / "b").read_bytes()
    lines = gzip.decompress(good).decode().splitlines(keepends=True)
    before = content(filled)
    spoiled = {
        "rows": lines[:3] + lines[4:],
        "end": lines[:-1],
        "format": [json.dumps({"gpulease_backup": 99}) + "\n", *lines[1:]],
        "table": [lines[0], '["nonsense", {"a": 1}]\n', *lines[1:]],
        "empty": [],
    }
    files = {how: gzip.compress("".join(each).encode()) for how, each in spoiled.items()}
    files |= {"cut": good[: len(good) // 2], "no gzip": b"a letter to my aunt"}
    for how, data in files.items():
        (tmp_path / "b").write_bytes(data)
        refused("bad_backup", restore, filled, tmp_path / "b", replace=True)
        assert content(filled) == before, how


def test_a_backup_of_a_newer_version_is_refused(address, tmp_path):
    head = {"gpulease_backup": 1, "revision": "9999"}
    (tmp_path / "b").write_bytes(gzip.compress((json.dumps(head) + "\n").encode()))
    refused("store_ahead", restore, address, tmp_path / "b")


NEXT = """
from alembic import op
revision, down_revision = "next", "0001"
def upgrade():
    op.execute("DELETE FROM meta WHERE name = 'secret'")
"""


def test_a_backup_of_an_older_version_is_brought_to_this_one(empty_address, tmp_path, monkeypatch):
    shutil.copytree(database.MIGRATIONS, tmp_path / "migrations")
    (tmp_path / "migrations" / "versions" / "next.py").write_text(NEXT)
    monkeypatch.setattr(database, "MIGRATIONS", tmp_path / "migrations")
    address = empty_address
    head = {"gpulease_backup": 1, "revision": "0001"}
    rows = [["meta", {"name": "secret", "value": "abc"}], ["meta", {"name": "epoch", "value": "4"}]]
    text = "".join(json.dumps(line) + "\n" for line in [head, *rows, {"rows": 2}])
    (tmp_path / "b").write_bytes(gzip.compress(text.encode()))
    assert restore(address, tmp_path / "b") == 2
    store = Store.open(address)
    assert store.epoch == 5
    store.close()
    assert "secret" not in str(content(address)["meta"])


def test_a_backup_holds_no_secret_of_the_service(filled, tmp_path):
    backup(filled, tmp_path / "b")
    text = gzip.decompress((tmp_path / "b").read_bytes()).decode()
    rows = [row for row in map(json.loads, text.splitlines()) if isinstance(row, list)]
    names = {values["name"] for table, values in rows if table == "meta"}
    assert names == {"instance_id", "epoch", "writes"}
