"""Runs in the store: written whole or not at all, paged, and gone when they are old."""

from dataclasses import replace
from datetime import timedelta

from gpulease.runs import life
from gpulease.store import Ages, RunChange, Store, people, retention
from gpulease.store import runs as stored
from tests.runs.test_life import NOW, run
from tests.store.tables import export
from tests.store.test_leases import refused


def save(store: Store, *changes: RunChange) -> None:
    store.write(stored.save, changes, NOW)


def test_what_is_stored_is_found_again_with_what_happened_to_it(store):
    one = run(1, parameters={"n": 3, "lr": 0.1}, after=("x",), groups=("cs101",), index=2)
    save(store, RunChange(None, one, "stu", "submitted"))
    over = life.cancel(one, one.user, NOW)
    save(store, RunChange(one, over, "stu", "cancelled", "no need"))
    assert store.read(stored.one, one.id) == over
    found = store.read(stored.events, one.id)
    assert [(each.what, each.note) for each in found] == [
        ("submitted", ""), ("cancelled", "no need"),
    ]  # fmt: skip


def test_two_who_change_the_same_run_do_not_both_win(store):
    one = run(1)
    save(store, RunChange(None, one, "stu", "submitted"))
    save(store, RunChange(one, life.cancel(one, one.user, NOW), "stu", "cancelled"))
    error = refused(
        "run_changed", save, store, RunChange(one, life.cancel(one, one.user, NOW), "eve", "x")
    )
    assert error.status == 409
    refused("run_changed", save, store, RunChange(None, one, "stu", "submitted"))


def test_runs_are_listed_newest_first_and_by_person(store):
    save(store, *(RunChange(None, run(n, user=f"u{n % 2}"), "u", "") for n in range(5)))
    found, total = store.read(stored.page, ["u0"], offset=1, limit=1)
    assert ([each.id[-1] for each in found], total) == (["2"], 3)
    assert store.read(stored.page, None, offset=0, limit=2)[1] == 5


def test_what_may_still_have_a_server_is_alive_and_old_runs_go(store):
    over = life.cancel(replace(run(1), cleared=False), "stu", NOW)
    save(store, RunChange(None, over, "stu", "cancelled"))
    assert store.read(stored.live) == [over]
    later = NOW + timedelta(days=91)
    assert store.write(retention.sweep, later, Ages()) == 0, "nobody knows that its server is gone"
    save(store, RunChange(over, replace(over, cleared=True, version=3), "gpulease"))
    assert store.read(stored.live) == []
    assert store.write(retention.sweep, NOW + timedelta(days=89), Ages()) == 0
    assert store.write(retention.sweep, later, Ages()) == 1
    assert store.read(stored.one, over.id) is None


def test_a_persons_runs_are_exported_and_forgotten(store, address):
    one = run(1, user="maria", notebook="marias-thesis.ipynb", parameters={"who": "maria"})
    save(store, RunChange(None, one, "maria", "submitted", "maria's"))
    refused("still_leasing", store.write, people.forget, "maria")
    over = life.cancel(one, one.user, NOW)
    save(store, RunChange(one, over, "maria", "cancelled"))
    (found,) = export(address, "maria")["runs"]
    assert (found["notebook"], len(found["changes"])) == ("marias-thesis.ipynb", 2)
    pseudonym, _ = store.write(people.forget, "maria")
    left = store.read(stored.one, one.id)
    assert left is not None
    assert (left.user, left.outcome) == (pseudonym, "cancelled")
    assert "maria" not in f"{left}{store.read(stored.events, one.id)}"
