"""The ledger: what it says of one person is what it says of all."""

from __future__ import annotations

from dataclasses import replace

from gpulease.policy.model import LeaseState
from gpulease.service.control_loop.ledger import Ledger
from gpulease.store import Change, Store
from tests.policy.build import NOW, active, request
from tests.store.tables import lay_tables


async def test_one_persons_leases_are_those_of_all_that_have_not_ended(tmp_path) -> None:
    address = lay_tables(tmp_path / "leases.sqlite")
    ledger = Ledger(Store.open(address), lambda _changes, _now: None)
    ann, bob = request(1, user="ann"), active(2, user="bob")

    def check() -> None:
        for user in ("ann", "bob", "eve"):
            assert set(ledger.live_of(user)) == {x for x in ledger.live() if x.user == user}

    await ledger.record([Change(None, ann, "ann", "asked"), Change(None, bob, "bob", "asked")], NOW)
    check()
    over = replace(ann, state=LeaseState.ENDED, ended=NOW, version=ann.version + 1)
    await ledger.record([Change(ann, over, "ann", "returned")], NOW)
    assert ledger.live_of("ann") == ()
    check()
    again = Ledger(ledger.store, lambda _changes, _now: None)
    await again.load(NOW)
    assert again.live_of("bob") == (bob,)
    ledger.forget(NOW, ())
    check()
    ledger.close()
