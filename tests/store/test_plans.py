"""Kept plans: read from the whole snapshot before them, gone by age and bytes, without a person."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import sqlalchemy as sa

from gpulease.policy.model import EndReason, LeaseState
from gpulease.store import Ages, KeptPlan, Store, backup, export, restore, snapshots
from gpulease.store.models import ReservationEventRow, ReservationRow
from gpulease.store.usage import Use, add
from tests.policy.build import NOW, request
from tests.service.test_plans import history
from tests.store.test_leases import new

DAY = timedelta(days=1)


def keep(store: Store, number: int, body: bytes = b"x" * 1000, *, whole: bool = True) -> None:
    at = NOW + number * DAY
    store.save([new(request(number))], at, KeptPlan(body, whole))


def test_a_plan_is_read_from_the_whole_snapshot_before_it(store):
    for number, whole in enumerate((True, False, False, True, False)):
        keep(store, number, bytes([number]), whole=whole)
    plans = [store.transitions(f"r{number}")[0].plan for number in range(5)]
    read = lambda *wanted: [row.body[0] for row in store.kept_plans([plans[n] for n in wanted])]  # noqa: E731
    assert read(0) == [0]
    assert read(2) == [0, 1, 2]
    assert read(4) == [3, 4]
    assert read(1, 4) == [0, 1, 3, 4]
    assert store.kept_plans([]) == []


def test_plans_go_by_age_and_by_bytes(store):
    for number in range(10):
        keep(store, number)
    until = NOW + 9 * DAY
    sweep = lambda **ages: store.sweep(until, Ages(**ages))  # noqa: E731
    assert sweep(plans=4.5) == 5
    assert sweep(plans=100) == 0
    assert sweep(plans=100, plans_bytes=3500) == 2
    assert sweep(plans=100, plans_bytes=3500) == 0
    kept = [store.transitions(f"r{number}")[0].plan for number in range(10)]
    assert [len(store.kept_plans([each])) for each in kept] == [0] * 7 + [1] * 3


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
    assert store.sweep(NOW, Ages()) == 1
    assert store.sweep(NOW, Ages()) == 1
    assert store.sweep(NOW, Ages()) == 0
    assert [use.until for use in store.usage_part(old - 9 * DAY, NOW)[0]] == [young]
    with store._read() as session:
        assert session.scalars(sa.select(ReservationEventRow.at)).all() == [young]


def test_a_person_is_taken_out_of_the_plans_and_their_part_is_exported(address):
    planned, kept = history()
    opened = Store.open(address)
    for number, row in enumerate(kept):
        opened.save([new(request(number))], NOW, row)
    opened.close()
    found = export(address, "user1")["plans"]
    assert found
    sections = {part[0] for each in found for part in each["parts"]}
    assert {"leases", "evidence", "observed"} <= sections
    assert "user2" not in str(found)

    opened = Store.open(address)
    for number in range(len(kept)):
        lease = request(number)
        over = replace(
            lease, state=LeaseState.ENDED, ended=NOW, end_reason=EndReason.RETURNED, version=2
        )
        opened.save([replace(new(lease), before=lease, after=over)], NOW)
    pseudonym, _ = opened.forget("user1")
    plans = [opened.transitions(f"r{number}")[0].plan for number in range(len(kept))]
    reader = snapshots.Reader()
    for (snapshot, _), row in zip(planned, opened.kept_plans(plans), strict=True):
        reader.read(row.body, whole=row.whole)
        users = {each.user for each in reader.kept.snapshot.leases}
        assert users == {pseudonym if x.user == "user1" else x.user for x in snapshot.leases}
    opened.close()
    assert export(address, "user1")["plans"] == []


def test_plans_come_back_from_a_backup(address, tmp_path):
    opened = Store.open(address)
    body = bytes(range(256))
    keep(opened, 1, body)
    opened.close()
    backup(address, tmp_path / "b")
    restore(address, tmp_path / "b", replace=True)
    opened = Store.open(address)
    (row,) = opened.kept_plans([opened.transitions("r1")[0].plan or 0])
    opened.close()
    assert (row.body, row.whole, row.at) == (body, True, NOW + DAY)
