"""Policy versions, the service's secret, and what is kept of evidence."""

import sqlalchemy as sa

from gpulease.policy.model import Verdict
from gpulease.store import EvidenceMinute, Store, VerdictChange, usage, writing
from gpulease.store.models import EvidenceMinuteRow, MetaRow, VerdictRow
from tests.policy.build import NOW, active, at, request
from tests.store.test_leases import new, refused


def test_policy_versions_count_up_and_stay(store):
    assert store.policy() is None
    assert store.save_policy("a: 1", "root", NOW, note="first") == 1
    assert store.save_policy("a: 2", "root", at(1), expected=1) == 2
    newest = store.policy()
    assert (newest.version, newest.text, newest.who, newest.at) == (2, "a: 2", "root", at(1))
    assert store.policy(1).note == "first"
    assert store.policy(3) is None
    assert [v.version for v in store.policy_versions()] == [2, 1]
    assert [v.version for v in store.policy_versions(before=2)] == [1]
    assert [v.version for v in store.policy_versions(limit=1)] == [2]


def test_two_editors_do_not_overwrite_each_other(store):
    store.save_policy("a: 1", "ann", NOW)
    store.save_policy("a: 2", "ann", NOW, expected=1)
    error = refused("policy_changed", store.save_policy, "a: 3", "bob", NOW, expected=1)
    assert error.numbers == {"newest": 2, "edited": 1}
    assert store.policy().text == "a: 2"


def test_the_instance_lives_as_long_as_the_database_and_no_secret_is_in_it(address):
    first = Store.open(address)
    instance = first.instance_id()
    first.close()
    second = Store.open(address)
    assert second.instance_id() == instance
    assert second.epoch == first.epoch + 1
    with second._read() as session:
        names = set(session.scalars(sa.select(MetaRow.name)))
    assert names == {"instance_id", "epoch", "writes"}
    second.close()


def test_verdict_changes_and_minutes(store):
    store.save([new(request(1))], NOW)
    store.write(
        writing.add_evidence,
        [VerdictChange("r1", NOW, Verdict.BUSY), VerdictChange("r1", at(9), Verdict.IDLE)],
        [EvidenceMinute("r1", NOW, busy=9, peak=0.5)],
    )
    store.write(writing.add_evidence, [], [EvidenceMinute("r1", NOW, idle=51, peak=0.2)])
    store.write(writing.add_evidence, [], [EvidenceMinute("r1", at(60), unknown=60)])
    with store._read() as session:
        rows = session.scalars(sa.select(EvidenceMinuteRow).order_by(EvidenceMinuteRow.minute))
        found = [(r.minute, r.busy, r.idle, r.unknown, r.peak) for r in rows]
        verdicts = list(session.scalars(sa.select(VerdictRow.verdict).order_by(VerdictRow.at)))
    assert found == [(NOW, 9, 51, 0, 0.5), (at(60), 0, 0, 60, None)]
    assert verdicts == ["busy", "idle"]


def test_use_is_summed_over_all_leases_and_devices_of_a_minute(store):
    for lease in (active(1), active(2, count=3, devices=("a", "b", "c"))):
        store.save([new(lease)], NOW)
    store.write(writing.add_evidence, [], [EvidenceMinute("r1", NOW, busy=40, idle=20)])
    store.write(writing.add_evidence, [], [EvidenceMinute("r2", NOW, busy=10, unknown=50)])
    store.write(writing.add_evidence, [], [EvidenceMinute("r1", at(60), quiet=60)])
    first, second = usage.Used(NOW, 70, 0, 20, 150), usage.Used(at(60), 0, 60, 0, 0)
    assert store.read(usage.minutes, NOW, at(120)) == [first, second]
    assert store.read(usage.minutes, NOW, at(60)) == [first]
    assert store.read(usage.minutes, at(1), at(120)) == [second]


def test_a_request_waits_until_it_gets_a_gpu_or_ends(store):
    store.save([new(request(1, created=at(-100)))], NOW)
    store.save([new(active(2, created=at(-90), active_since=at(-30)))], NOW)
    waits = store.read(usage.waits, at(-60), NOW)
    assert waits == [
        usage.Waited(at(-90), at(-30), granted=True),
        usage.Waited(at(-100), None, granted=False),
    ]
    assert [each.granted for each in store.read(usage.waits, at(-20), NOW)] == [False]
    assert store.read(usage.waits, at(-200), at(-150)) == []
    assert len(store.read(usage.waits, at(-60), NOW, 1)) == 1
