"""Tables come by migration only, as a whole, and never under a running service."""

import shutil
import subprocess
import sys

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from gpulease.errors import GPULeaseError
from gpulease.store import Store, database, upgrade
from gpulease.store.database import head, revision
from gpulease.store.engine import make_engine
from gpulease.store.models import Base, PlanRow
from tests.another_version import copy_of_package
from tests.policy.build import NOW, active, request
from tests.store.test_leases import full_lease, new, refused

OLDER = "0.0.9"
LEASES = [full_lease(), active(7), request(2)]


def execute(address, *statements):
    engine = make_engine(address, may_make=True)
    with engine.execution_options(writes=True).begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def test_an_empty_database_is_refused_with_the_way_out(empty_address):
    make_engine(empty_address, may_make=True).dispose()
    error = refused("store_behind", Store.open, empty_address)
    assert "gpulease db upgrade" in error.next_step


def test_upgrading_twice_does_nothing_more(address):
    upgrade(address)
    engine = make_engine(address)
    assert revision(engine) == head()
    engine.dispose()


def test_the_migrations_make_the_tables_of_the_models(address):
    engine = make_engine(address)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_an_older_database_is_refused(address):
    execute(address, "update alembic_version set version_num = '0000'")
    # Unknown to this code is the same as newer: it must not be touched.
    refused("store_ahead", Store.open, address)


def test_a_newer_database_is_refused_and_left_alone(address):
    execute(address, "update alembic_version set version_num = '9999'")
    error = refused("store_ahead", Store.open, address)
    assert error.numbers == {"found": "9999", "known": head()}
    refused("store_ahead", upgrade, address)
    engine = make_engine(address)
    assert revision(engine) == "9999"
    engine.dispose()


NEXT = """
from alembic import op
revision, down_revision = "next", "0001"
def upgrade():
    op.execute("DELETE FROM plans")
"""


def plans(address):
    engine = make_engine(address)
    with engine.connect() as connection:
        found = connection.scalar(sa.select(sa.func.count()).select_from(PlanRow))
    engine.dispose()
    return found


def test_an_older_database_is_migrated_once_with_its_leases(address, tmp_path, monkeypatch):
    store = Store.open(address)
    store.save([new(each) for each in LEASES], NOW, b"a plan")
    name, epoch = store.instance_id(), store.epoch
    store.close()
    shutil.copytree(database.MIGRATIONS, tmp_path / "migrations")
    (tmp_path / "migrations" / "versions" / "next.py").write_text(NEXT)
    monkeypatch.setattr(database, "MIGRATIONS", tmp_path / "migrations")
    behind = refused("store_behind", Store.open, address)
    assert behind.numbers == {"found": "0001", "needed": "next"}
    assert plans(address) == 1, "a refusal changes nothing"
    upgrade(address)
    assert plans(address) == 0, "the plans of that version go"
    store = Store.open(address)
    assert sorted(store.live(), key=repr) == sorted(LEASES, key=repr)
    assert (store.instance_id(), store.epoch) == (name, epoch + 1)
    store.save([new(request(3))], NOW, b"a plan")
    store.close()
    upgrade(address)
    assert plans(address) == 1, "a migration that was done is not done again"


@pytest.mark.processes
@pytest.mark.parametrize("command", [["service"], ["db", "upgrade"]], ids=" ".join)
def test_an_older_version_refuses_a_newer_database_and_leaves_it_alone(tmp_path, command):
    address = f"sqlite:///{tmp_path}/leases.sqlite"
    upgrade(address)
    store = Store.open(address)
    store.save([new(each) for each in LEASES], NOW)
    store.close()
    execute(address, "update alembic_version set version_num = 'next'")
    older = copy_of_package(tmp_path / "older", OLDER)
    done = subprocess.run(
        [sys.executable, "-m", "gpulease.cli", *command, "--database", address],
        cwd=older.folder,
        env=older.environment | {"JUPYTERHUB_API_TOKEN": "for this test only"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "was made by a newer gpulease" in done.stderr
    assert "Install the newer gpulease again" in done.stderr
    assert "Traceback" not in done.stderr
    execute(address, f"update alembic_version set version_num = '{head()}'")
    store = Store.open(address)
    assert sorted(store.live(), key=repr) == sorted(LEASES, key=repr)
    store.close()


def test_a_failed_upgrade_has_changed_nothing(empty_address):
    # A table that a later step will want to make: the earlier steps must not stay.
    execute(empty_address, "create table evidence_minutes (mine integer)")
    with pytest.raises((sa.exc.DBAPIError, GPULeaseError)):
        upgrade(empty_address)
    engine = make_engine(empty_address)
    assert sa.inspect(engine).get_table_names() == ["evidence_minutes"]
    engine.dispose()
    execute(empty_address, "drop table evidence_minutes")
    upgrade(empty_address)


def test_no_upgrade_under_a_running_service(address):
    store = Store.open(address)
    upgrade(address)  # nothing to do: no harm
    execute(address, "delete from alembic_version")
    refused("store_in_use", upgrade, address)
    store.close()


@pytest.mark.parametrize(
    "address",
    ["", "nonsense", "mysql://x/y", "sqlite://", "sqlite:///:memory:"],
)
def test_addresses_that_cannot_be_used(address):
    refused("bad_database", Store.open, address)


def test_a_refusal_never_shows_the_password():
    address = "postgresql://ann:hunter2@127.0.0.1:1/leases"
    error = refused("store_unavailable", Store.open, address)
    assert "hunter2" not in f"{error} {error.numbers}"
