"""The store's contract, on SQLite and on PostgreSQL."""

from dataclasses import fields, replace
from datetime import timedelta, timezone

import pytest
import sqlalchemy as sa

from gpulease.errors import GPULeaseError
from gpulease.policy import lifecycle
from gpulease.policy.model import EndReason, Lease, LeaseState, Shape, Start, Verdict
from gpulease.store import (
    Change,
    EvidenceMinute,
    IdempotencyKey,
    Store,
    VerdictChange,
    history,
    writing,
)
from gpulease.store.models import from_json, to_json
from tests.policy.build import NOW, OUTS, active, at, draining, request, starting, warned


def new(lease: Lease, **more) -> Change:
    return Change(None, lease, "ann", "asked", **more)


def refused(reason, call, *args, **kwargs):
    with pytest.raises(GPULeaseError) as error:
        call(*args, **kwargs)
    assert error.value.reason == reason, error.value
    return error.value


def full_lease() -> Lease:
    """A lease whose every member differs from its default."""
    return Lease(
        id="full", user="ann", server="lab", gpu_class="t4", count=2, ticket=(at(-9), 7),
        created=at(-9), state=LeaseState.DRAINING, state_since=at(-1), kernel_id="k", origin="page",
        groups=("b", "a"), project="p", wanted=60.5, in_quota_only=True, batch=True, attempt=3,
        reason="idle", failures=1, not_before=at(1), stage_since=at(-9), devices=("GPU-0", "GPU-1"),
        active_since=at(-8), idle_from=at(-7), claimed=at(-6), hard_end=at(99), warned_until=at(2),
        drain_until=at(3), asked_class="h200", needs="ecc", min_count=1, asked_count=4,
        becomes=Shape("t4", ("GPU-0",)), kept=("GPU-8",), gave=(("GPU-9", "r2"),),
        end_reason_wanted=EndReason.IDLE, undrainable=True, park=True, keeps=2, kept_until=at(4),
        nominated_for="r9", server_ready=False, end_reason=EndReason.IDLE, end_note="bye",
        end_cause="evicted", detail="d", blockers=(("g", "why"),), parked=2, ended=at(5), version=4,
        price=2.5, pool="cards", charged_from=at(-3), charged_until=at(-4), charge_estimated=True,
        image="course:1", nodes=2, card_parts=10, steps=(4, 2),
    )  # fmt: skip


def test_a_lease_comes_back_as_it_was(store):
    lease = full_lease()
    defaults = replace(request(1))
    same = [f.name for f in fields(Lease) if getattr(lease, f.name) == getattr(defaults, f.name)]
    assert same == ["gpu_class"]
    store.save([new(lease)], NOW)
    assert store.lease("full") == lease
    assert store.live() == [lease]
    assert store.lease("nobody") is None


def test_times_come_back_as_the_same_instants():
    lease = request(1, created=NOW.astimezone(timezone(timedelta(hours=5))))
    assert from_json(to_json(lease)) == lease


def test_a_record_of_a_neighbouring_version_is_read():
    record = to_json(request(1))
    del record["failures"]
    record["invented_later"] = 1
    assert from_json(record) == request(1)


def test_each_change_is_an_audit_row(store):
    lease = request(1)
    started = lifecycle.apply(lease, Start("r1", "starting", ("GPU-0",)), at(1), OUTS)
    ended = lifecycle.force_end(started, at(2), OUTS, "maintenance")
    store.save([new(lease)], NOW)
    store.save([Change(lease, started, "service", "starting")], at(1))
    store.save([Change(started, ended, "admin", "forced")], at(2))
    rows = [
        (r.who, r.why, r.source, r.target, r.at, r.note)
        for r in store.read(history.transitions, "r1")
    ]
    assert rows == [
        ("ann", "asked", "", "queued", NOW, ""),
        ("service", "starting", "queued", "starting", at(1), ""),
        ("admin", "forced", "starting", "ended", at(2), "maintenance"),
    ]


def test_a_lease_that_moved_on_is_not_overwritten(store):
    lease = request(1)
    store.save([new(lease)], NOW)
    first = lifecycle.end(lease, EndReason.WITHDRAWN, NOW)
    store.save([Change(lease, first, "ann", "withdrawn")], NOW)
    late = lifecycle.apply(lease, Start("r1", "starting", ("GPU-0",)), NOW, OUTS)
    error = refused("version_conflict", store.save, [Change(lease, late, "service", "x")], NOW)
    assert error.status == 409
    assert store.lease("r1") == first
    assert len(store.read(history.transitions, "r1")) == 2


def test_changes_are_written_all_or_none(store):
    one, two = request(1), request(2)
    store.save([new(one)], NOW)
    ended = lifecycle.end(one, EndReason.WITHDRAWN, NOW)
    stale = replace(two, version=9)
    refused("version_conflict", store.save, [
        Change(one, ended, "ann", "withdrawn"), Change(stale, stale, "service", "x"),
    ], NOW)  # fmt: skip
    assert store.lease("r1") == one
    assert len(store.read(history.transitions, "r1")) == 1


def test_a_lease_is_made_once(store):
    store.save([new(request(1))], NOW)
    refused("version_conflict", store.save, [new(request(1, user="bob"))], NOW)
    assert store.lease("r1").user == "user1"


def test_no_device_is_granted_twice(store):
    store.save([new(starting(1, "GPU-0"))], NOW)
    error = refused("device_taken", store.save, [new(starting(2, "GPU-0"))], NOW)
    assert error.numbers == {"device": "GPU-0", "lease": "r1", "leases": ["r2"]}
    assert store.lease("r2") is None


def test_a_device_passes_on_in_one_step(store):
    old, waiting = draining(1, devices=("GPU-0",)), request(2)
    store.save([new(old), new(waiting)], NOW)
    ended = lifecycle.end(old, EndReason.IDLE, NOW)
    started = lifecycle.apply(waiting, Start("r2", "starting", ("GPU-0",)), NOW, OUTS)
    # The order in which they are named must not matter.
    store.save([Change(waiting, started, "service", "x"), Change(old, ended, "service", "x")], NOW)
    assert store.lease("r2").devices == ("GPU-0",)


def test_ended_leases_are_loaded_while_their_nominee_waits(store):
    ended = lifecycle.end(draining(1, nominated_for="r2"), EndReason.IDLE, NOW)
    other = lifecycle.end(draining(3, nominated_for="gone"), EndReason.IDLE, NOW)
    waiting = request(2)
    store.save([new(ended), new(waiting), new(other)], NOW)
    assert {lease.id for lease in store.live()} == {"r1", "r2"}
    withdrawn = lifecycle.end(waiting, EndReason.WITHDRAWN, NOW)
    store.save([Change(waiting, withdrawn, "ann", "withdrawn")], NOW)
    assert store.live() == []


def test_tickets_only_go_up(address):
    store = Store.open(address)
    first = store.next_ticket(at(10))
    assert store.next_ticket(at(5)) > first, "the clock went backwards"
    store.save([new(request(1, ticket=store.next_ticket(at(20))))], NOW)
    store.close()
    again = Store.open(address)
    assert again.next_ticket(at(15)) > (at(20), 3)
    again.close()


def test_an_idempotency_key_means_one_lease(store):
    key = IdempotencyKey("ann", "abc", "body-1", at(60))
    assert store.remembered(key, NOW) is None
    store.save([new(request(1), key=key)], NOW)
    assert store.remembered(key, NOW) == "r1"
    assert store.remembered(replace(key, who="bob"), NOW) is None, "keys are each caller's own"
    refused("key_reused", store.remembered, replace(key, fingerprint="other"), NOW)
    store.write(writing.remember, [(key, "r1")], NOW)
    store.save([new(request(2))], NOW)
    refused("key_reused", store.write, writing.remember, [(key, "r2")], NOW)


def test_an_idempotency_key_expires(store):
    key = IdempotencyKey("ann", "abc", "body-1", at(60))
    store.save([new(request(1), key=key), new(request(2))], NOW)
    assert store.remembered(key, at(60)) is None
    store.write(writing.remember, [(replace(key, expires=at(120)), "r2")], at(60))
    assert store.remembered(key, at(60)) == "r2"


def test_history_pages_through_everything_once(store, monkeypatch):
    # Five share an instant: the page's edge must fall among them without loss.
    monkeypatch.setattr(history, "MAX_PAGE", 4)
    leases = [request(n, created=at(n // 5), groups=("course",)) for n in range(23)]
    store.save([new(lease) for lease in leases], NOW)
    seen = []
    while some := store.read(history.older, [], ["course"], seen[-1] if seen else None):
        seen += some
    assert seen == sorted(leases, key=lambda x: (x.created, x.id), reverse=True)


def test_history_is_filtered_by_person_group_and_state(store):
    store.save(
        [
            new(request(1, user="ann", groups=("course",))),
            new(warned(2, user="bob", groups=("course", "other"))),
            new(active(3, user="cem")),
        ],
        NOW,
    )

    def ids(**how):
        return {lease.id for lease in store.read(history.page, **how)[0]}

    assert ids() == {"r1", "r2", "r3"}
    assert ids(users=["ann"]) == {"r1"}
    assert ids(groups=["course"]) == {"r1", "r2"}
    assert ids(users=["cem"], groups=["other"]) == {"r2", "r3"}
    assert ids(users=[]) == set()
    assert ids(groups=["course"], states=[LeaseState.WARNED]) == {"r2"}
    assert ids(users=["%", "ann' or 1=1 --"]) == set()


def test_a_page_has_a_size(store):
    store.save([new(request(n)) for n in range(3)], NOW)
    for limit, number in ((0, 0), (1, 1), (10**9, 3)):
        found, total = store.read(history.page, limit=limit)
        assert (len(found), total) == (number, 3)


def test_the_name_of_a_device_may_be_as_long_as_a_cluster_makes_it(store):
    long = f"{'n' * 253}/nvidia.com/mig-3g.20gb/12"
    lease = active(1, long)
    store.save([Change(None, lease, "ann", "adopted")], NOW)
    assert store.lease(lease.id).devices == (long,)


def test_of_ended_leases_the_last_to_end_comes_first(store):
    long = replace(request(1), state=LeaseState.ENDED, ended=at(50))
    short = replace(request(2, created=at(10)), state=LeaseState.ENDED, ended=at(20))
    store.save([new(long), new(short), new(request(3, created=at(5)))], NOW)
    found, total = store.read(history.page, states=[LeaseState.ENDED])
    assert ([lease.id for lease in found], total) == (["r1", "r2"], 2)
    found, total = store.read(history.page)
    assert ([lease.id for lease in found], total) == (["r2", "r3", "r1"], 3)


def statements(store, work) -> int:
    """Return how many statements were sent to the database, one for many rows counted once."""
    sent = []

    def count(_connection, _cursor, statement, *_):
        sent.append(statement)

    sa.event.listen(store._reading, "before_cursor_execute", count)
    try:
        work()
    finally:
        sa.event.remove(store._reading, "before_cursor_execute", count)
    return len(sent)


def a_round(store, first, number):
    """Ask, start, activate and end so many leases, all at each step at once."""
    asked = [request(n, groups=("g", "h")) for n in range(first, first + number)]
    keys = [IdempotencyKey("ann", each.id, "same", at(99)) for each in asked]
    running = [
        lifecycle.apply(each, Start(each.id, "starting", (f"GPU-{each.id}",)), NOW, OUTS)
        for each in asked
    ]
    ended = [lifecycle.end(each, EndReason.FAILED, NOW) for each in running]
    minute = NOW.replace(second=0)
    return [
        lambda: store.save([new(x, key=k) for x, k in zip(asked, keys, strict=True)], NOW),
        lambda: store.save(
            [Change(a, b, "p", "w") for a, b in zip(asked, running, strict=True)], NOW
        ),
        lambda: store.write(
            writing.add_evidence,
            [VerdictChange(x.id, NOW, Verdict.BUSY) for x in running],
            [EvidenceMinute(x.id, minute, busy=3) for x in running],
        ),
        lambda: store.write(
            writing.add_evidence, [], [EvidenceMinute(x.id, minute, idle=3) for x in running]
        ),
        lambda: store.save(
            [Change(a, b, "p", "w") for a, b in zip(running, ended, strict=True)], NOW
        ),
    ]


def test_a_round_takes_as_many_statements_for_many_changes_as_for_few(store):
    few = [statements(store, work) for work in a_round(store, 0, 2)]
    many = [statements(store, work) for work in a_round(store, 10, 200)]
    assert many == few
    assert store.read(history.busy_seconds, ["r150"]) == {"r150": (3.0, 6.0)}


def test_a_refusal_names_all_changes_in_conflict(store):
    leases = [request(n) for n in range(5)]
    store.save([new(each) for each in leases], NOW)
    moved = [lifecycle.server_ready(each, ready=False) for each in leases]
    store.save([Change(leases[n], moved[n], "p", "w") for n in (1, 3)], NOW)
    error = refused(
        "version_conflict",
        store.save,
        [new(leases[0]), *(Change(leases[n], moved[n], "p", "w") for n in (1, 2, 3))],
        NOW,
    )
    assert error.numbers["leases"] == ["r0", "r1", "r3"]
    assert store.lease("r2") == leases[2]


def test_a_refusal_names_all_who_want_a_device_that_is_taken(store):
    first = starting(1, "GPU-0")
    store.save([new(first)], NOW)
    others = [starting(2, "GPU-0"), starting(3, "GPU-1"), starting(4, "GPU-1")]
    error = refused("device_taken", store.save, [new(each) for each in others], NOW)
    assert error.numbers["leases"] == ["r2", "r4"]
