"""What was charged is written with the change that ends it, and never changed."""

from dataclasses import replace

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy import lifecycle
from gpulease.policy.budgets import Use
from gpulease.policy.model import EndReason, Lease
from gpulease.store import Change, people, usage
from tests.policy.build import NOW, OUTS, active, at


def charged(**changed) -> Lease:
    return active(
        1, user="ann", project="phys", pool="cards", price=2.0, charged_from=at(-3600), **changed
    )


def write(store, before: Lease | None, after: Lease) -> Lease:
    store.save([Change(before, after, "planner", "test")], NOW)
    return after


def between(store, since, until, **whose) -> list[Use]:
    found, after = store.read(usage.part, since, until, **whose)
    assert after == 0, "it is all"
    return found


def used(store, **whose) -> list[Use]:
    return between(store, at(-9000), at(9000), **whose)


def test_the_start_of_a_drain_ends_a_stretch_and_the_drain_costs_nothing(store):
    lease = write(store, None, charged())
    assert used(store) == []
    draining = write(store, lease, lifecycle.give_back(lease, NOW, OUTS))
    row = Use("r1", "ann", "phys", "t4", "cards", 1, 2.0, at(-3600), NOW)
    assert used(store) == [row]
    assert row.hours() == 2.0
    write(store, draining, lifecycle.end(draining, EndReason.RETURNED, at(50)))
    assert used(store) == [row]


def test_a_lease_that_comes_back_begins_another_stretch(store):
    lease = write(store, None, charged())
    draining = write(store, lease, lifecycle.give_back(lease, NOW, OUTS))
    back = write(store, draining, lifecycle.asked_again(draining, at(20)))
    write(store, back, lifecycle.end(back, EndReason.SERVER_GONE, at(80)))
    assert [(use.since, use.until) for use in used(store)] == [(at(-3600), NOW), (at(20), at(80))]


def test_what_died_unseen_is_charged_until_it_was_heard_of_last_and_marked(store):
    lease = write(store, None, charged())
    gone = lifecycle.end(lease, EndReason.FAILED, NOW, last_seen=at(-15))
    write(store, lease, gone)
    (use,) = used(store)
    assert (use.until, use.estimated) == (at(-15), True)


def test_a_change_that_is_refused_charges_nothing(store):
    lease = write(store, None, charged())
    stale = replace(lease, version=lease.version + 7)
    with pytest.raises(GPULeaseError):
        write(store, stale, lifecycle.give_back(stale, NOW, OUTS))
    assert used(store) == []


def test_use_is_read_by_time_person_and_project(store):
    for number, (user, project) in enumerate([("ann", "phys"), ("bob", "phys"), ("cem", "bio")]):
        lease = replace(
            charged(), id=f"r{number}", user=user, project=project, devices=(f"{user}",)
        )
        write(store, None, lease)
        write(store, lease, lifecycle.give_back(lease, NOW, OUTS))
    assert [use.user for use in used(store, users=["ann"])] == ["ann"]
    assert [use.user for use in used(store, projects=["phys"])] == ["ann", "bob"]
    assert [use.user for use in used(store, users=["cem"], projects=[])] == ["cem"]
    assert between(store, at(1), at(9)) == []
    assert between(store, at(-9), at(-3)) != []


def test_a_person_who_is_forgotten_leaves_the_hours_under_a_pseudonym(store):
    lease = write(store, None, charged())
    draining = write(store, lease, lifecycle.give_back(lease, NOW, OUTS))
    write(store, draining, lifecycle.end(draining, EndReason.RETURNED, at(50)))
    pseudonym, _ = store.write(people.forget, "ann")
    assert [use.user for use in used(store)] == [pseudonym]


def test_much_is_read_in_parts_so_that_others_write_between(store, monkeypatch):
    monkeypatch.setattr(usage, "_SOME", 4)
    uses = [
        Use(f"r{n}", f"u{n % 3}", "", "t4", "cards", 1, 1.0, at(n), at(n + 1)) for n in range(9)
    ]
    store.write(usage.add, uses)
    first, after = store.read(usage.part, at(-10), at(99))
    store.write(usage.add, [replace(uses[0], lease_id="late")])
    second, then = store.read(usage.part, at(-10), at(99), after=after)
    third, last = store.read(usage.part, at(-10), at(99), after=then)
    assert [len(first), len(second), len(third), last] == [4, 4, 2, 0]
    assert [*first, *second, *third][:9] == uses
    assert between(store, at(-10), at(99), users=["u1"]) == uses[1::3]
    assert store.read(usage.part, at(200), at(300)) == ([], 0)
