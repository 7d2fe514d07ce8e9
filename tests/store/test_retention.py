"""Old history goes in small batches, sums stay, and no query reads more as history grows."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from gpulease.policy.model import EndReason, LeaseState, Verdict
from gpulease.store import (
    Ages,
    EvidenceMinute,
    Store,
    VerdictChange,
    history,
    retention,
    upgrade,
    writing,
)
from gpulease.store.models import Base, to_json
from tests.policy.build import NOW, request
from tests.store.test_leases import new

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
AGES = Ages()


def ended(name: str, at: datetime):
    return request(
        1, id=name, state=LeaseState.ENDED, created=at - DAY / 24, active_since=at - DAY / 24,
        ended=at, end_reason=EndReason.RETURNED, groups=("cs101",),
    )  # fmt: skip


def watched(store: Store, leases: str | list[str], since: datetime, minutes: int) -> None:
    leases = [leases] if isinstance(leases, str) else leases
    parts = [
        EvidenceMinute(
            lease, since + timedelta(minutes=n), busy=20, idle=39, unknown=1, peak=n / 60
        )
        for lease in leases
        for n in range(minutes)
    ]
    changes = [VerdictChange(lease, since, Verdict.BUSY) for lease in leases]
    store.write(writing.add_evidence, changes, parts)


def sweep(store: Store, now: datetime = NOW, ages: Ages = AGES) -> int:
    """Sweep until nothing is left; return how many batches it took."""
    batches = 0
    while store.write(retention.sweep, now, ages):
        batches += 1
    return batches


def counts(store: Store) -> dict[str, int]:
    with store._read() as session:
        return {
            name: session.scalar(sa.select(sa.func.count()).select_from(table))
            for name, table in Base.metadata.tables.items()
        }


def test_minutes_become_hours_then_sums_and_say_the_same_throughout(store):
    start = NOW.replace(minute=13) - 3 * DAY
    store.save([new(request(1)), new(request(2))], NOW)
    for lease in ("r1", "r2"):
        watched(store, lease, start, 150)
    sums = dict.fromkeys(("r1", "r2"), (150 * 20.0, 150 * 60.0))
    assert store.read(history.busy_seconds, ["r1", "r2"]) == sums
    assert sweep(store, start + DAY / 2) == 0
    assert counts(store)["evidence_minutes"] == 300

    assert sweep(store) > 0
    assert counts(store)["evidence_minutes"] == 2 * 3
    assert store.read(history.busy_seconds, ["r1", "r2"]) == sums
    with store._read() as session:
        rows = session.execute(
            sa.text("select busy, peak from evidence_minutes where lease_id='r1' order by minute")
        ).all()
    assert [busy for busy, _ in rows] == [47 * 20, 60 * 20, 43 * 20]
    assert [peak for _, peak in rows] == pytest.approx([46 / 60, 106 / 60, 149 / 60])
    assert sweep(store) == 0, "what is folded stays as it is"

    assert sweep(store, NOW + 31 * DAY) > 0
    assert counts(store)["evidence_minutes"] == counts(store)["verdicts"] == 0
    assert store.read(history.busy_seconds, ["r1", "r2"]) == sums
    watched(store, "r1", NOW + 31 * DAY, 1)
    assert store.read(history.busy_seconds, ["r1"]) == {"r1": (151 * 20.0, 151 * 60.0)}


def test_a_minute_of_today_stays_a_minute(store):
    store.save([new(request(1))], NOW)
    watched(store, "r1", NOW - DAY + timedelta(hours=1), 60)
    assert sweep(store) == 0
    assert counts(store)["evidence_minutes"] == 60


def test_a_lease_goes_400_days_after_its_end_with_all_that_is_its_own(store):
    for name, age in (("old", 401), ("young", 399)):
        at = NOW - age * DAY
        store.save([new(ended(name, at))], at)
        watched(store, name, at, 5)
    store.save([new(request(7))], NOW - 800 * DAY)  # it waits; it has not ended
    assert sweep(store) > 0
    assert store.lease("old") is None
    assert store.lease("young") is not None
    assert store.lease("r7") is not None
    with store._read() as session:
        for table in ("transitions", "lease_groups", "verdicts", "evidence_minutes"):
            query = f"select count(*) from {table} where lease_id = 'old'"
            assert session.scalar(sa.text(query)) == 0
    assert [row.why for row in store.read(history.transitions, "young")]
    assert store.read(history.busy_seconds, ["young"]) == {"young": (100.0, 300.0)}


def test_a_version_of_the_policy_goes_400_days_after_the_next_came_into_force(store):
    for text, age in (("a: 1", 900), ("a: 2", 401), ("a: 3", 399)):
        store.save_policy(text, "root", NOW - age * DAY)
    assert sweep(store) > 0
    assert [each.version for each in store.policy_versions()] == [3, 2], (
        "2 was in force 400 days ago"
    )
    assert store.policies_kept() == 2
    assert sweep(store, NOW + 2000 * DAY) > 0
    assert store.policy().text == "a: 3", "what is in force stays, however old"
    assert store.save_policy("a: 4", "root", NOW, expected=3) == 4
    assert sweep(store) == 0


def test_a_batch_is_small(store):
    store.save([new(request(n)) for n in range(60)], NOW)
    watched(store, [f"r{n}" for n in range(60)], NOW - 3 * DAY, 4)
    most, before = 0, counts(store)["evidence_minutes"]
    while store.write(retention.sweep, NOW, AGES):
        left = counts(store)["evidence_minutes"]
        most, before = max(most, before - left), left
    assert before == 60
    assert 0 < most <= 50 * 4


def fill(store: Store, now: datetime, leases: int, days: int, hours: int) -> None:
    """Write the history that ``leases`` at a time leave behind in so many days, by SQL.

    As it stands after the sweeps of all these days: each lease was held for ``hours``.  SQLite.
    """
    record = json.dumps(to_json(ended("ID", now)))
    first, length = now - days * DAY, timedelta(hours=hours)
    written = "%Y-%m-%d %H:%M:%S.000000"

    def at(offset: str) -> str:
        return f"strftime('{written.replace('.000000', '')}.000000', '{first:{written}}', {offset})"

    number = int(days * DAY / length) * leases
    count = f"with recursive n(i) as (select 0 union all select i+1 from n where i+1 < {number})"
    begun = f"'+' || (i / {leases} * {hours * 3600}) || ' seconds'"
    over = f"'+' || ((i / {leases} + 1) * {hours * 3600}) || ' seconds'"
    five = " union all ".join(f"select {n} s" for n in range(5))
    evidence = (now - AGES.evidence * DAY).strftime(written)
    with store._writing.begin() as connection:
        run = connection.exec_driver_sql
        run(f"""insert into leases (id, version, user, server, gpu_class, state, created,
            active_since, ended, record, busy, watched)
            {count} select 'L' || i, 9, 'user' || (i % 997), '', 'any', 'ended', {at(begun)},
            {at(begun)}, {at(over)}, replace('{record}', 'ID', 'L' || i), 600, 3600 from n""")
        run("insert into lease_groups select id, 'cs' || (length(id) % 7) from leases")
        run(f"""insert into transitions
            (lease_id, version, at, who, why, source, target, attempt, note)
            select id, s, created, 'planner', 'connected', 'starting', 'active', 1, ''
            from leases join ({five})""")
        run(f"""insert into verdicts (lease_id, at, verdict)
            select id, ended, 'busy' from leases join ({five}) where ended > '{evidence}'""")
        each = f"(select 0 union all select k + 1 from h where k + 1 < {hours})"
        run(f"""with recursive h(k) as {each} insert into evidence_minutes
            select id, strftime('%Y-%m-%d %H:%M:%S.000000', created, '+' || k || ' hours'),
            600, 0, 3000, 0, 0.5 from leases join h where ended > '{evidence}'""")
        last = (now - DAY).strftime(written)
        run(f"""with recursive m(k) as (select 1 union all select k + 1 from m where k + 1 < 60)
            insert into evidence_minutes
            select lease_id, strftime('%Y-%m-%d %H:%M:%S.000000', minute, '+' || k || ' minutes'),
            10, 0, 50, 0, 0.5 from evidence_minutes join m where minute > '{last}'""")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    upgrade(f"sqlite:///{tmp_path}/leases.sqlite")
    return tmp_path / "leases.sqlite"


def use(store: Store, now: datetime) -> list[str]:
    """Do what a service does all day, and return how each statement finds its rows."""
    told: list[tuple[str, object]] = []

    def note(_connection, _cursor, statement, parameters, _context, many):
        told.append((statement, parameters[0] if many else parameters))

    event.listen(store._reading, "before_cursor_execute", note)
    store.save([new(request(1, created=now))], now)
    watched(store, "r1", now, 2)
    store.write(retention.sweep, now + DAY, AGES)
    store.live()
    store.next_ticket(now)
    first = store.read(history.older, ["user5"], ["cs1"], None)
    store.read(history.older, ["user5"], ["cs1"], first[-1])
    store.read(history.page, states=[LeaseState.ENDED], limit=500)
    store.read(history.page, users=["user5"], limit=50)
    store.read(history.busy_seconds, ["L5", "r1"])
    store.read(history.transitions, "L5")
    store.read(history.incidents, ["adopted", "volume_failed"], limit=50)
    store.read(history.incidents, ["adopted"], since=now - DAY, limit=None)
    store.read(history.plans, [1, 100])
    event.remove(store._reading, "before_cursor_execute", note)
    plans = []
    with store._reading.connect() as connection:
        for statement, parameters in told:
            if statement.split()[0] in {"SELECT", "UPDATE", "DELETE"}:
                rows = connection.exec_driver_sql(f"explain query plan {statement}", parameters)
                plans += [f"{row[3]}  <- {statement}" for row in rows]
    return plans


def whole(plans: list[str]) -> list[str]:
    """Return the steps that read a whole table, or a whole index, of what grows."""
    grows = ("leases", "transitions", "verdicts", "evidence_minutes", "lease_groups", "plans")
    return [
        plan for plan in plans
        if plan.startswith(tuple(f"SCAN {name}" for name in grows)) and " LIMIT " not in plan
    ]  # fmt: skip


def test_two_months_of_history_are_bounded_and_no_query_reads_it_whole(file):
    store = Store.open(f"sqlite:///{file}")
    fill(store, NOW, leases=2, days=40, hours=8)
    before = counts(store)
    assert before["leases"] == 2 * 40 * 3
    assert before["evidence_minutes"] > 2 * 60 * 24
    sweep(store)
    found = counts(store)
    assert found["evidence_minutes"] <= 2 * 24 * (60 + 31)
    assert found["verdicts"] <= 5 * 2 * 3 * 31
    plans = use(store, NOW)
    assert len(plans) > 30
    assert whole(plans) == []
    sweep(store, NOW + 500 * DAY)
    kept = counts(store)
    assert (kept["leases"], kept["transitions"]) == (1, 1), "what has not ended stays"
    assert kept["evidence_minutes"] == kept["verdicts"] == kept["lease_groups"] == 0
    store.close()


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_year_of_500_leases_stays_under_two_gigabytes(file):
    store = Store.open(f"sqlite:///{file}")
    fill(store, NOW, leases=500, days=365, hours=8)
    sweep(store)
    assert file.stat().st_size < 2 * 2**30
    plans = use(store, NOW)
    assert whole(plans) == []
    store.close()
