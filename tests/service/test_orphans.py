"""What runs and is not in the picture; which pools others take from."""

from dataclasses import replace

from gpulease.policy import lifecycle
from gpulease.policy.model import EndReason, LeaseState, Observed
from gpulease.service.control_loop.incidents import ContendedCapacity, Orphans
from gpulease.service.control_loop.ledger import Ledger
from gpulease.store import Change, Store
from tests.policy.build import NOW, active, at, starting
from tests.store.tables import lay_tables

RECORD = active(1, "n0/0", attempt=2)
SEEN = Observed("r1", 2, devices=("n0/0",), record=RECORD)


async def ledger(tmp_path):
    address = lay_tables(tmp_path / "store.sqlite")
    return Ledger(Store.open(address), lambda *_: None)


async def test_a_stranger_is_adopted_once_and_an_admin_hears_of_it_while_it_lives(tmp_path):
    book = await ledger(tmp_path)
    orphans = Orphans(book, "planner")
    (change,) = await orphans.look({"r1": SEEN}, NOW)
    assert (change.before, change.why) == (None, "adopted")
    await book.record([change], NOW)
    orphans.adopted(change.after)
    assert await orphans.look({"r1": SEEN}, NOW) == []
    assert [alert.reason for alert in orphans.alerts()] == ["adopted"]
    ended = lifecycle.end(change.after, EndReason.EXPIRED, NOW)
    await book.record([Change(change.after, ended, "planner", "expired")], NOW)
    assert orphans.alerts() == []
    book.close()


async def test_a_lease_that_was_only_forgotten_comes_back_into_the_picture_as_it_ended(tmp_path):
    book = await ledger(tmp_path)
    over = lifecycle.end(replace(RECORD, version=1), EndReason.RETURNED, NOW)
    await book.record([Change(None, over, "stu", "returned")], NOW)
    book.leases.clear()
    assert await Orphans(book, "planner").look({"r1": SEEN}, NOW) == []
    assert book.leases["r1"].state is LeaseState.ENDED
    book.close()


def taken(number):
    before = starting(number, "n0/0")
    after = replace(before, state=LeaseState.QUEUED, reason="capacity_taken")
    return Change(before, after, "planner", "capacity_taken")


def test_taken_capacity_is_counted_by_pool_until_a_start_succeeds():
    contended = ContendedCapacity()
    contended.moved(taken(1), "cards", NOW)
    contended.moved(taken(2), "cards", at(5))
    contended.moved(taken(3), "other", at(6))
    assert contended.times == {"cards": (NOW, at(5)), "other": (at(6),)}
    before = starting(4)
    contended.moved(Change(before, active(4), "planner", "connected"), "cards", at(9))
    assert contended.times == {"other": (at(6),)}


def test_another_failure_takes_no_capacity():
    contended = ContendedCapacity()
    change = taken(1)
    after = replace(change.after, reason="image_error")
    contended.moved(replace(change, after=after), "cards", NOW)
    assert contended.times == {}


async def test_of_leases_that_ended_the_newest_thousand_of_an_hour_are_in_memory(tmp_path):
    book = await ledger(tmp_path)
    for number in range(1200):
        over = replace(RECORD, id=f"e{number}", state=LeaseState.ENDED, ended=at(number))
        book.add(replace(over, end_reason=EndReason.RETURNED))
    book.add(RECORD)
    book.forget(at(1200), {"e0"})
    assert set(book.leases) == {"r1", "e0", *(f"e{number}" for number in range(200, 1200))}
    assert len(book.all()) == 1002
    book.forget(at(3600 + 1100), ())
    assert set(book.leases) == {"r1", *(f"e{number}" for number in range(1100, 1200))}
    book.close()
