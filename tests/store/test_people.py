"""One person's data: all of it, and none of it."""

import gzip
import json

from gpulease.policy.model import LeaseState
from gpulease.store import Change, Store, backup, history, people
from gpulease.store.models import ReservationEventRow, ReservationRow
from tests.policy.build import NOW, request
from tests.store.tables import export
from tests.store.test_leases import new, refused
from tests.store.test_retention import ended, watched


def fill(address: str) -> None:
    store = Store.open(address)
    first = ended("L1", NOW)
    theirs = type(first)(**{
        **vars(first), "user": "maria", "server": "marias-thesis", "end_note": "maria asked",
        "blockers": (("marias_variable", "too large"),), "kernel_id": "k-maria",
    })  # fmt: skip
    store.save([Change(None, theirs, "maria", "asked")], NOW)
    watched(store, "L1", NOW, 3)
    store.save([Change(None, request(2, user="eve"), "eve", "asked")], NOW)
    after = request(2, user="eve", state=LeaseState.ENDED, ended=NOW, version=2)
    store.save([Change(request(2, user="eve"), after, "maria", "forced")], NOW)
    store.save_policy("a: 1", "maria", NOW, note="mine")
    store.save_policy("a: 2", "ann", NOW, note="as maria wished")
    said = [{"by": who, "text": text} for who, text in (("maria", "Hi"), ("eve", "Ask maria."))]
    store.note("messages", json.dumps([*said, {"by": "eve", "text": "The lab is at 14:00."}]))
    with store._write() as session:
        people = {"owner": "eve", "named": ["maria", "bob"], "extra_time": {"maria": 600}}
        session.add(
            ReservationRow(
                id="R", version=1, group_name="cs101", name="lab", cancelled=False, created=NOW,
                record=people,
            )
        )  # fmt: skip
        session.flush()
        for who in ("maria", "eve"):
            session.add(
                ReservationEventRow(reservation_id="R", at=NOW, who=who, what="told", note="maria")
            )
    store.close()


def test_all_that_is_stored_about_a_person_is_exported(address):
    fill(address)
    found = export(address, "maria")
    (lease,) = found["leases"]
    assert (lease["id"], lease["server"]) == ("L1", "marias-thesis")
    assert (lease["busy_seconds"], lease["watched_seconds"]) == (60.0, 180.0)
    assert [change["who"] for change in lease["changes"]] == ["maria"]
    assert [each["verdict"] for each in lease["verdicts"]] == ["busy"]
    assert [each["lease"] for each in found["changes_of_others_leases"]] == ["r2"]
    assert [each["note"] for each in found["policy_versions"]] == ["mine"]
    assert [each["named"] for each in found["reservations"]] == [["maria", "bob"]]
    assert len(found["reservation_events"]) == 1
    assert [each["text"] for each in found["messages"]] == ["Hi"]
    assert "eve" not in str(found["leases"])
    assert export(address, "nobody")["leases"] == []


def test_who_is_forgotten_is_nowhere_and_the_use_stays(address, tmp_path):
    fill(address)
    store = Store.open(address)
    pseudonym, number = store.write(people.forget, "maria")
    assert number == 1
    kept = store.lease("L1")
    assert kept is not None
    assert (kept.user, kept.groups, kept.end_reason) == (pseudonym, ("cs101",), "returned")
    assert store.read(history.busy_seconds, ["L1"]) == {"L1": (60.0, 180.0)}
    assert [row.who for row in store.read(history.transitions, "r2")] == ["eve", pseudonym]
    store.close()
    backup(address, tmp_path / "b")
    text = gzip.decompress((tmp_path / "b").read_bytes()).decode()
    assert "maria" not in text
    assert "eve" in text
    assert "The lab is at 14:00." in text
    assert f'"named": ["{pseudonym}", "bob"], "extra_time": {{"{pseudonym}": 600}}' in text


def test_who_has_a_lease_is_not_forgotten(address):
    store = Store.open(address)
    store.save([new(request(1, user="maria"))], NOW)
    assert refused("still_leasing", store.write, people.forget, "maria").numbers == {"leases": 1}
    assert store.lease("r1").user == "maria"
    store.close()


def test_two_people_have_two_pseudonyms_and_nobody_has_one(address):
    fill(address)
    store = Store.open(address)
    assert store.write(people.forget, "maria")[0] != store.write(people.forget, "eve")[0]
    for name in ("mariah", "maria"):
        error = refused("unknown_person", store.write, people.forget, name)
        assert name in error.sentence, "a misspelt name does not look like done"
    store.close()
