"""Kept plans: read by their numbers, gone by age and bytes, without a person."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import sqlalchemy as sa

from gpulease.policy.model import EndReason, LeaseState
from gpulease.store import (
    Ages,
    Store,
    backup,
    history,
    people,
    restore,
    retention,
    usage,
)
from gpulease.store.models import ReservationEventRow, ReservationRow
from gpulease.store.usage import Use, add
from tests.policy.build import NOW, request
from tests.service import test_plans
from tests.store.tables import export
from tests.store.test_leases import new

DAY = timedelta(days=1)


def keep(store: Store, number: int, size: int = 1000) -> None:
    """Keep a plan whose body has a size: what is random is not compressed."""
    decided = {f"r{number}": {"words": [random.Random(number).randbytes(size).hex()]}}
    store.save([new(request(number))], NOW + number * DAY, history.pack({"leases": decided}))


def test_plans_are_read_by_their_numbers(store):
    for number in range(3):
        keep(store, number)
    plans = [store.read(history.transitions, f"r{number}")[0].plan for number in range(3)]
    found = store.read(history.plans, [plans[0], plans[2], 99])
    assert {number: list(each.leases) for number, each in found.items()} == {
        plans[0]: ["r0"], plans[2]: ["r2"],
    }  # fmt: skip
    assert store.read(history.plans, []) == {}


def test_plans_go_by_age_and_by_bytes(store):
    for number in range(10):
        keep(store, number)
    until = NOW + 9 * DAY
    sweep = lambda **ages: store.write(retention.sweep, until, Ages(**ages))  # noqa: E731
    assert sweep(plans=4.5) == 5
    assert sweep(plans=100) == 0
    assert sweep(plans=100, plans_bytes=3900) == 2
    assert sweep(plans=100, plans_bytes=3900) == 0
    kept = [store.read(history.transitions, f"r{number}")[0].plan for number in range(10)]
    assert [len(store.read(history.plans, [each])) for each in kept] == [0] * 7 + [1] * 3


def test_use_and_events_of_reservations_go_by_age(store):
    old, young = NOW - 401 * DAY, NOW - 399 * DAY
    with store._write() as session:
        uses = [Use("r1", "ann", "p", "t4", "cards", 1, 1.0, at - DAY, at) for at in (old, young)]
        add(session, uses)
        session.add(
            ReservationRow(
                id="R", version=1, group_name="g", name="n", cancelled=False, created=old, record={}
            )
        )
        session.flush()
        for at in (old, young):
            session.add(ReservationEventRow(reservation_id="R", at=at, who="a", what="w", note=""))
    assert store.write(retention.sweep, NOW, Ages()) == 1
    assert store.write(retention.sweep, NOW, Ages()) == 1
    assert store.write(retention.sweep, NOW, Ages()) == 0
    assert [use.until for use in store.read(usage.part, old - 9 * DAY, NOW)[0]] == [young]
    with store._read() as session:
        assert session.scalars(sa.select(ReservationEventRow.at)).all() == [young]


def test_a_person_is_taken_out_of_the_plans_and_their_part_is_exported(address):
    kept = test_plans.history()
    opened = Store.open(address)
    for number, (_, _, body) in enumerate(kept):
        opened.save([new(request(number))], NOW, body)
    opened.close()
    found = export(address, "user1")["plans"]
    assert {"Start", "Warn", "Drain"} <= {each["action"] for each in found}
    assert "user2" not in str(found)

    opened = Store.open(address)
    for number in range(len(kept)):
        lease = request(number)
        over = replace(
            lease, state=LeaseState.ENDED, ended=NOW, end_reason=EndReason.RETURNED, version=2
        )
        opened.save([replace(new(lease), before=lease, after=over)], NOW)
    pseudonym, _ = opened.write(people.forget, "user1")
    plans = [opened.read(history.transitions, f"r{number}")[0].plan for number in range(len(kept))]
    after = opened.read(history.plans, plans)
    for (snapshot, _, _), number in zip(kept, plans, strict=True):
        users = {each.id: each.user for each in snapshot.leases}
        for lease_id, made in after[number].leases.items():
            assert made["user"] == (pseudonym if users[lease_id] == "user1" else users[lease_id])
            assert "user1" not in str(made)
    opened.close()
    assert export(address, "user1")["plans"] == []


def test_plans_come_back_from_a_backup(address, tmp_path):
    opened = Store.open(address)
    keep(opened, 1)
    number = opened.read(history.transitions, "r1")[0].plan
    before = opened.read(history.plans, [number])
    opened.close()
    backup(address, tmp_path / "b")
    restore(address, tmp_path / "b", replace=True)
    opened = Store.open(address)
    assert opened.read(history.plans, [number]) == before
    assert before[number].at == NOW + DAY
    opened.close()
