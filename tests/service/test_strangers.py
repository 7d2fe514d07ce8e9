"""What runs and is not in the picture; which pools others take from."""

from dataclasses import replace

from gpulease.policy import lifecycle
from gpulease.policy.model import EndReason, LeaseState, Observed
from gpulease.service.ledger import Ledger
from gpulease.service.strangers import Strangers, Thefts
from gpulease.store import Change, Store, upgrade
from tests.policy.build import NOW, active, at, starting

RECORD = active(1, "n0/0", attempt=2)
SEEN = Observed("r1", 2, devices=("n0/0",), record=RECORD)


async def ledger(tmp_path):
    address = f"sqlite:///{tmp_path}/store.sqlite"
    upgrade(address)
    return Ledger(Store.open(address), lambda *_: None)


async def test_a_stranger_is_adopted_once_and_an_admin_hears_of_it_while_it_lives(tmp_path):
    book = await ledger(tmp_path)
    strangers = Strangers(book, "planner")
    (change,) = await strangers.look({"r1": SEEN}, NOW)
    assert (change.before, change.why) == (None, "adopted")
    await book.record([change], NOW)
    strangers.adopted(change.after)
    assert await strangers.look({"r1": SEEN}, NOW) == []
    assert [alert.reason for alert in strangers.alerts()] == ["adopted"]
    ended = lifecycle.end(change.after, EndReason.EXPIRED, NOW)
    await book.record([Change(change.after, ended, "planner", "expired")], NOW)
    assert strangers.alerts() == []
    book.close()


async def test_a_lease_that_was_only_forgotten_comes_back_into_the_picture_as_it_ended(tmp_path):
    book = await ledger(tmp_path)
    over = lifecycle.end(replace(RECORD, version=1), EndReason.RETURNED, NOW)
    await book.record([Change(None, over, "stu", "returned")], NOW)
    book.leases.clear()
    assert await Strangers(book, "planner").look({"r1": SEEN}, NOW) == []
    assert book.leases["r1"].state is LeaseState.ENDED
    book.close()


def taken(number):
    before = starting(number, "n0/0")
    after = replace(before, state=LeaseState.QUEUED, reason="capacity_taken")
    return Change(before, after, "planner", "capacity_taken")


def test_thefts_are_counted_by_pool_until_a_start_succeeds():
    thefts = Thefts()
    thefts.moved(taken(1), "cards", NOW)
    thefts.moved(taken(2), "cards", at(5))
    thefts.moved(taken(3), "other", at(6))
    assert thefts.times == {"cards": (NOW, at(5)), "other": (at(6),)}
    before = starting(4)
    thefts.moved(Change(before, active(4), "planner", "connected"), "cards", at(9))
    assert thefts.times == {"other": (at(6),)}


def test_another_failure_is_no_theft():
    thefts = Thefts()
    change = taken(1)
    after = replace(change.after, reason="image_error")
    thefts.moved(replace(change, after=after), "cards", NOW)
    assert thefts.times == {}
