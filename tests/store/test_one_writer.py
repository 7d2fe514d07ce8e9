"""One writer at a time: the second is refused, the next takes over after kill -9."""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpulease.errors import GPULeaseError
from gpulease.store import Store, fence, upgrade
from gpulease.store.fence import LOCK_KEY
from tests.helpers import wait_for
from tests.policy.build import NOW, request
from tests.store.test_leases import new, refused


def start_writer(address):
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("writer.py")), address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_second_writer_is_refused(address):
    first = Store.open(address)
    refused("store_in_use", Store.open, address)
    first.close()
    first.close()
    second = Store.open(address)
    second.save([new(request(1))], NOW)
    second.close()


def test_the_lock_is_free_before_the_server_notices_that_the_session_was_closed(
    address, monkeypatch
):
    late: list[fence._Advisory] = []
    with monkeypatch.context() as patch:
        patch.setattr(fence._Advisory, "_close", lambda self: late.append(self))
        Store.open(address).close()
        Store.open(address).close()
    for each in late:
        each._close()


@pytest.mark.processes
def test_after_kill_9_the_next_one_takes_over(address):
    with start_writer(address) as other:
        assert other.stdout.readline().strip() == "1"
        refused("store_in_use", Store.open, address)
        other.send_signal(signal.SIGKILL)
        other.wait()
        store = open_soon(address)
        assert store.epoch == 2
        store.save([new(request(1))], NOW)
        store.close()


def open_soon(address):
    """PostgreSQL's server notices a dead client a moment later."""

    def opened():
        with suppress(GPULeaseError):
            return Store.open(address)

    return wait_for(opened, 30, "the next writer takes over")


def test_a_writer_that_was_replaced_writes_no_more(store):
    """It slept through a take-over: its lock is gone, and it does not know."""
    with store._writing.begin() as connection:
        connection.execute(sa.text("update meta set value = '99' where name = 'epoch'"))
    for write in (
        lambda: store.save([new(request(1))], NOW),
        lambda: store.save_policy("a: 1", "ann", NOW),
        store.check,
    ):
        error = refused("store_fenced", write)
        assert error.numbers == {"own_epoch": 1, "epoch": 99}
    assert store.live() == []


def test_the_heartbeat_is_quiet_while_all_is_well(store):
    store.check()
    store.save([new(request(1))], NOW)


@pytest.mark.postgresql
def test_a_writer_whose_connection_broke_takes_its_lock_again(cluster):
    address = cluster.database()
    upgrade(address)
    store = Store.open(address)
    cluster.execute("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
    assert not store._lock.held()
    store.check()
    assert store._lock.held()
    store.save([new(request(1))], NOW)
    store.close()


@pytest.mark.postgresql
def test_a_writer_that_lost_its_lock_to_another_stops(cluster):
    address = cluster.database()
    upgrade(address)
    store = Store.open(address)
    cluster.execute("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
    other = open_soon(address)
    refused("store_in_use", store.check)
    refused("store_fenced", store.save, [new(request(1))], NOW)
    other.save([new(request(2))], NOW)
    other.close()
    store.close()


def test_the_lock_is_our_own():
    assert LOCK_KEY.to_bytes(8, "big", signed=True) == b"gpulease"
