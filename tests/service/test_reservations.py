"""Reservations through the real service: who may, what fits, and a lab of three GPUs."""

from datetime import UTC, datetime, timedelta

import pytest
from tornado.httpclient import AsyncHTTPClient

from gpulease.errors import GPULeaseError
from gpulease.service.context import Retention
from gpulease.service.hubs.auth import Asker
from gpulease.store import Ages, reservations
from gpulease.store.reservations import events
from tests.helpers import wait_for_async
from tests.service.kit import active_lease, running, works_out_here


def _monday():
    """A Monday to come in March, before the clocks change in Berlin; five weeks on they have."""
    day = datetime.now(UTC).date() + timedelta(days=2)
    while not (day.month == 3 and day.day <= 20 and day.weekday() == 0):
        day += timedelta(days=1)
    return day


MONDAY = _monday()
DAY, WEEK2, WEEK3, WEEK6 = (str(MONDAY + timedelta(weeks=n)) for n in (0, 1, 2, 5))
LAB = {
    "name": "lab",
    "group": "cs101",
    "gpu_class": "gpu",
    "seats": 2,
    "start": f"{DAY}T14:00",
    "end": "16:00",
    "zone": "Europe/Berlin",
}
POLICY = """\
pools: {simulated-gpu: {evidence: process}}
classes: {gpu: {pool: simulated-gpu, max_count: 2}}
time_outs:
  {warm_up: 0, idle: 1h, warning: 1s, drain_max: 5s, minimum_runtime: 0, interrupt_grace: 0}
reservations: {advance: 366d, lead: 3s}
"""


def prof(site, *groups):
    scopes = [f"custom:gpulease:reserve!group={group}" for group in groups or ("cs101",)]
    return site.client(site.hub.token("prof", *scopes))


@pytest.fixture
async def site(hub, tmp_path, monkeypatch):
    works_out_here(monkeypatch)
    first = tmp_path / "policy.yaml"
    first.write_text(POLICY)
    async with running(hub, tmp_path, gpus=3, first_policy_file=first) as found:
        yield found


async def refused(call):
    with pytest.raises(GPULeaseError) as caught:
        await call
    return caught.value


async def book(client, **changed):
    return await client.call("POST", "reservations", {**LAB, **changed})


async def test_an_instructor_reserves_for_the_group_and_sees_every_window(site):
    teacher = prof(site)
    made = await book(teacher, repeat="FREQ=WEEKLY;COUNT=6", without=[WEEK3])
    assert (made["version"], made["owner"], made["windows_ahead"]) == (1, "prof", 5)
    shown = [(w["local_start"], w["start"][11:16]) for w in made["windows"]]
    assert {(w["seats"], w["reserved"]) for w in made["windows"]} == {(2, 2)}
    assert shown[0] == (f"{DAY}T14:00", "13:00")
    assert shown[-1] == (f"{WEEK6}T14:00", "12:00"), "summer time: still two on the wall"
    found = await teacher.call("GET", "reservations")
    assert [each["name"] for each in found["items"]] == ["lab"]
    one = await teacher.call("GET", f"reservations/{made['id']}")
    assert one["windows"] == made["windows"]


async def test_members_see_what_comes_and_not_what_concerns_others(site):
    made = await book(
        prof(site), named=["stu"], contact=["prof@example.org"], extra_time={"stu": "30m"}
    )
    assert (made["mine"], made["windows"][0]["end_for_you"]) == (False, made["windows"][0]["end"])
    seen = await site.client(site.hub.page_token("stu")).call("GET", f"reservations/{made['id']}")
    assert seen["sentence"].startswith(f"2 seats of gpu for 1 person named: {MONDAY:%a %d %b %Y}")
    assert "14:00 to 16:00 (Europe/Berlin)" in seen["sentence"]
    assert not {"contact", "named", "managers", "extra_time"} & set(seen)
    own, end = (seen["windows"][0][name] for name in ("end_for_you", "end"))
    assert datetime.fromisoformat(own) - datetime.fromisoformat(end) == timedelta(minutes=30)
    assert seen["mine"]
    stranger = site.client(site.hub.page_token("eve"))
    assert (await stranger.call("GET", "reservations"))["items"] == []
    error = await refused(stranger.call("GET", f"reservations/{made['id']}"))
    assert (error.reason, error.status) == ("no_such_reservation", 404)


async def test_only_who_teaches_the_group_may_reserve_change_and_cancel(site):
    made = await book(prof(site))
    for client in (site.client(site.hub.page_token("stu")), prof(site, "cs102")):
        assert (await refused(book(client, name="other"))).reason == "may_not_reserve"
        for method, body in (("PATCH", {"seats": 1}), ("DELETE", {})):
            error = await refused(client.call(method, f"reservations/{made['id']}", body))
            assert error.status in (403, 404)
    admin = site.client(site.hub.admin_token())
    changed = await admin.call("PATCH", f"reservations/{made['id']}", {"seats": 3})
    assert changed["seats"] == 3


async def test_teaching_assistants_manage_what_they_are_named_for(site):
    made = await book(prof(site), managers=["eve"])
    assistant = site.client(site.hub.page_token("eve"))
    changed = await assistant.call("PATCH", f"reservations/{made['id']}", {"title": "Lab 1"})
    assert changed["title"] == "Lab 1"


async def test_what_does_not_fit_is_refused_with_the_nearest_window_and_nothing_is_stored(site):
    await book(prof(site))
    other = prof(site, "cs102")
    error = await refused(book(other, group="cs102", repeat="FREQ=WEEKLY;COUNT=3"))
    assert (error.reason, error.status) == ("reservation_conflict", 409)
    assert "2 for cs101, 14:00-16:00" in error.sentence
    assert error.numbers["offer"]["nearest"] == f"{DAY}T16:00"
    assert error.numbers["offer"]["seats"] == 1
    assert (await other.call("GET", "reservations"))["items"] == []
    taken = await book(other, group="cs102", start=error.numbers["offer"]["nearest"], end="18:00")
    assert taken["windows_ahead"] == 1


async def test_a_dry_run_does_nothing_and_counts_what_stands_before_in_the_list(site):
    teacher = prof(site)
    again = {**LAB, "name": "again"}
    found = await teacher.call("POST", "reservations/check", {"reservations": [LAB, again]})
    assert [each["fits"] for each in found["items"]] == [True, False]
    assert found["items"][1]["problem"]["reason"] == "reservation_conflict"
    assert (await teacher.call("GET", "reservations"))["items"] == []


async def test_an_instructor_is_told_at_once_when_there_are_more_people_than_seats(site):
    for name in ("ann", "bob", "cyn", "dan"):
        site.hub.user(name, groups=("cs101",))
    people = sum("cs101" in user["groups"] for user in site.hub.users.values())
    assert people > 3
    made = await book(prof(site))
    assert made["short"]["sentence"] == f"lab of cs101 has 2 seats for {people} people."
    assert made["short"]["offer"]["split"] == f"{DAY}T16:00"
    changed = await prof(site).call("PATCH", f"reservations/{made['id']}", {"named": ["stu"]})
    assert changed["short"] is None


async def test_a_repeated_booking_is_the_same_and_a_name_is_taken_once(site):
    teacher, headers = prof(site), {"Idempotency-Key": "k1"}
    first = await teacher.call("POST", "reservations", LAB, headers=headers)
    second = await teacher.call("POST", "reservations", LAB, headers=headers)
    assert first["id"] == second["id"]
    changed = {"seats": 1, "title": "changed since"}
    await teacher.call("PATCH", f"reservations/{first['id']}", changed)
    third = await teacher.call("POST", "reservations", LAB, headers=headers)
    assert (third["id"], third["seats"]) == (first["id"], 1)
    for other in ({"name": "other"}, {"seats": 1}):
        body = {**LAB, **other}
        error = await refused(teacher.call("POST", "reservations", body, headers=headers))
        assert (error.reason, error.status) == ("key_reused", 422)
    assert (await refused(book(teacher))).reason == "name_taken"


async def test_one_window_is_moved_or_cancelled_and_the_rest_stays(site):
    teacher = prof(site)
    made = await book(teacher, repeat="FREQ=WEEKLY;COUNT=3")
    address = f"reservations/{made['id']}"
    moved = {"window": {"at": f"{WEEK2}T14:00", "start": "10:00", "end": "11:00"}}
    error = await refused(teacher.call("PATCH", address, {**moved, "base_version": 7}))
    assert error.reason == "reservation_changed"
    # A time alone is the same day, or the next where it is before.
    moved["window"] |= {"start": f"{WEEK2}T10:00"}
    found = await teacher.call("PATCH", address, moved)
    assert [w["local_start"] for w in found["windows"]] == [
        f"{DAY}T14:00",
        f"{WEEK2}T10:00",
        f"{WEEK3}T14:00",
    ]
    gone = await teacher.call("PATCH", address, {"window": {"at": DAY, "cancelled": True}})
    assert gone["windows_ahead"] == 2


async def test_a_window_that_begins_within_a_minute_is_named_as_it_is_shown(site):
    teacher = prof(site)
    made = await book(teacher, start=f"{DAY}T14:00:07", repeat="FREQ=WEEKLY;COUNT=2")
    at = made["windows"][1]["at"]
    address = f"reservations/{made['id']}"
    found = await teacher.call("PATCH", address, {"window": {"at": at, "cancelled": True}})
    assert (found["windows_ahead"], found["start"]) == (1, f"{DAY}T14:00:07")


async def test_a_cancelled_reservation_is_gone_from_the_list_and_its_name_free(site):
    teacher = prof(site)
    made = await book(teacher)
    found = await teacher.call("DELETE", f"reservations/{made['id']}", {"note": "ill"})
    assert found["cancelled"]
    assert (await teacher.call("GET", "reservations"))["items"] == []
    assert (await book(teacher))["id"] != made["id"]


async def test_reservations_survive_a_restart(hub, tmp_path):
    first = tmp_path / "policy.yaml"
    first.write_text(POLICY)
    async with running(hub, tmp_path, gpus=3, first_policy_file=first) as site:
        made = await book(prof(site), repeat="FREQ=WEEKLY;COUNT=3", extra_time={"ann": "30m"})
    async with running(hub, tmp_path, gpus=3) as site:
        found = await prof(site).call("GET", f"reservations/{made['id']}")
        assert found["windows"] == made["windows"]
        assert found["extra_time"] == {"ann": 1800.0}


WRONG = [
        {"seats": 0}, {"seats": "2"}, {"start": "now"}, {"start": f"{DAY}T14:00Z"},
        {"zone": "Berlin"}, {"repeat": "FREQ=SECONDLY"}, {"end": f"{DAY}T13:00"},
{"idle": "soon"}, {"nmae": "x"},
        {"contact": ["a@b\r\nBcc: c@d"]}, {"start": "9999-12-31T23:59"}, {"gpu_class": "h100"},
        {"contact": ["a\x1cb@x.org"]},
        {"extra_time": {"ann": -1}}, {"without": ["x"]}, {"seats": 10**5},
    ]  # fmt: skip


async def test_a_wrong_member_is_refused_and_nothing_is_stored(site):
    for wrong in WRONG:
        error = await refused(book(prof(site), **wrong))
        assert 400 <= error.status < 500
        assert error.sentence
        assert site.service.services.reservations.all() == []


async def reserve_soon(site, seconds=5.0, length=600.0, **changed):
    """Reserve all three GPUs for cs101 from a few seconds on."""
    start = datetime.now(UTC) + timedelta(seconds=seconds)
    plain = start.replace(tzinfo=None, microsecond=0)
    end = plain + timedelta(seconds=length)
    body = {"start": plain.isoformat(), "end": end.isoformat(), "zone": "UTC", "seats": 3}
    return await book(prof(site), **{**body, **changed})


async def leave(supervisor):
    """Bring everything home when asked to."""
    await supervisor.next("drain")
    await supervisor.say({"type": "drained", "result": "done"})


async def test_a_lab_of_three_gpus_and_two_groups(site, hub):
    for number in range(3):
        hub.user(f"bio{number}", "", groups=("bio",))
        hub.user(f"cs{number}", "", groups=("cs101",))
    # Three people of another group hold every GPU, and work.
    others = [await active_lease(site, f"bio{number}") for number in range(3)]
    lab = await reserve_soon(site)
    # They read why and when they must leave, long before they are warned.
    said = (await site.client(site.hub.page_token("bio0")).lease(others[0][0]["id"]))["sentence"]
    assert "reserved for cs101" in said
    assert "must give it back by" in said
    for lease, _, supervisor in others:
        await leave(supervisor)
        ended = await site.lease(lease["id"], "ended")
        assert ended.end_reason == "preempted"
    # A member's GPU starts in the lead; one of the others waits although two are free.
    member, _, _ = await active_lease(site, "cs0")
    waiting = await site.client(hub.server_token("bio1")).ask({"origin": "magic"})

    def told():
        lease = site.service.services.ledger.leases[waiting["id"]]
        return lease.reason == "reserved"

    await wait_for_async(told, 30, "the reason")
    view = await site.client(site.hub.page_token("bio1")).lease(waiting["id"])
    assert "reserved for a lab" in view["sentence"]
    assert "They are reserved for cs101 from" in view["sentence"]
    mine = await site.client(site.hub.page_token("cs0")).lease(member["id"])
    assert "You have a seat in “lab” until" in mine["sentence"]
    window = (await prof(site).call("GET", f"reservations/{lab['id']}"))["windows"][0]
    assert (window["seats"], window["claimed"]) == (3, 1)
    # The instructor sees who came, and nobody else does.
    address = f"{site.url}api/reservations/{lab['id']}/attendance.csv"

    async def table(token):
        headers = {"Authorization": f"token {token}"}
        return await AsyncHTTPClient().fetch(address, headers=headers, raise_error=False)

    assert (await table(hub.page_token("cs0"))).code == 403
    # The instructor ends a student's lease, and then the lab: the other group is served.
    ended = await prof(site).end(member["id"], "Please use the other exercise.")
    assert "Please use the other exercise." in ended["sentence"]

    def opened():
        return datetime.now(UTC) >= datetime.fromisoformat(window["start"])

    await wait_for_async(opened, 30, "the window")
    came = await table(hub.token("prof", "custom:gpulease:reserve!group=cs101"))
    assert came.code == 200
    assert came.body.decode().startswith("window,user,came,left,leases,held_seconds,busy_seconds")
    over = {"window": {"end_now": True}}
    await prof(site).call("PATCH", f"reservations/{lab['id']}", over)
    await site.lease(waiting["id"], "starting")


async def test_groups_that_change_while_a_reservation_stands_count_at_once(site, hub):
    """As where an LMS keeps them: who waits already is served as the course's, or not any more."""
    for name, group in (("late", "bio"), ("left", "cs101"), ("here", "cs101")):
        hub.user(name, "", groups=(group,))
    lab = await reserve_soon(site, 2)
    held, _, _ = await active_lease(site, "here")
    waiting = await site.client(hub.server_token("late")).ask({"origin": "magic"})
    leases = site.service.services.ledger.leases
    await wait_for_async(lambda: leases[waiting["id"]].reason == "reserved", 30, "the reason")

    hub.users["late"]["groups"] = ["bio", "cs101"]
    hub.users["here"]["groups"] = []
    await site.lease(waiting["id"], "starting")
    assert leases[waiting["id"]].groups == ("bio", "cs101")
    changes = await site.client(hub.admin_token()).call("GET", f"leases/{waiting['id']}/events")
    assert "groups_changed" in [each["why"] for each in changes["items"]]

    stu = site.client(hub.page_token("late"))
    assert (await stu.call("GET", "reservations"))["items"][0]["id"] == lab["id"]
    assert leases[held["id"]].groups == ("cs101",), "who holds a GPU keeps it"
    hub.users["left"]["groups"] = []
    gone = await site.client(hub.server_token("left")).ask({"origin": "magic"})
    await wait_for_async(lambda: leases[gone["id"]].reason == "reserved", 30, "the reason")


async def test_who_was_warned_stays_when_the_lab_is_cancelled(site, hub):
    hub.user("bio0", "", groups=("bio",))
    lease, channel, _ = await active_lease(site, "bio0")
    policy = await site.client(site.hub.admin_token()).call("GET", "policy")
    longer = policy["text"].replace("warning: 1s", "warning: 1h")
    await site.client(site.hub.admin_token()).call("PUT", "policy", {"text": longer})
    lab = await reserve_soon(site, 60)
    await site.lease(lease["id"], "warned")
    await prof(site).call("DELETE", f"reservations/{lab['id']}", {})
    await site.lease(lease["id"], "active")
    view = channel.view(lease["id"])
    assert view is not None


async def test_in_an_exam_there_is_no_keep(site, hub):
    hub.user("cs0", "", groups=("cs101",))
    await reserve_soon(site, 2, exam=True)
    lease, _, _ = await active_lease(site, "cs0")
    client = site.client(hub.server_token("cs0"))
    assert (await client.lease(lease["id"]))["keep"]["left"] == 0
    assert (await refused(client.keep(lease["id"]))).reason == "keep_not_possible"


async def test_windows_that_are_over_are_shown_to_who_asks_since_when(site):
    teacher = prof(site)
    now = datetime.now(UTC)
    begun, over = now - timedelta(minutes=5), now + timedelta(minutes=5)
    start, end = (f"{at:%Y-%m-%dT%H:%M}" for at in (begun, over))
    made = await book(teacher, start=start, end=end, zone="UTC")
    await teacher.call("PATCH", f"reservations/{made['id']}", {"window": {"end_now": True}})

    async def listed(query):
        return (await teacher.call("GET", f"reservations{query}"))["items"][0]["windows"]

    assert await listed("") == []
    day = f"{now - timedelta(days=1):%Y-%m-%dT%H:%M}Z"
    assert [each["state"] for each in await listed(f"?since={day}")] == ["over"]
    for bad in ("yesterday", "0.5", "1764000000", "2026-03-02T14:00"):
        error = await refused(teacher.call("GET", f"reservations?since={bad}"))
        assert (error.reason, error.status) == ("invalid_query", 422)


async def test_a_reservation_goes_long_after_its_last_window_and_with_it_what_happened(site):
    teacher, services = prof(site), site.service.services
    lab, series = await book(teacher), await book(
        teacher, name="series", repeat="FREQ=WEEKLY;COUNT=6", start=f"{DAY}T10:00", end="11:00"
    )  # fmt: skip
    await teacher.call(
        "DELETE", f"reservations/{(await book(teacher, name='off', seats=1))['id']}", {}
    )
    at = datetime.fromisoformat(lab["windows"][-1]["end"]) + timedelta(days=400)

    async def kept_at(now: datetime) -> list[str]:
        old = Retention(services.ledger, services.reservations, Ages(), clock=lambda: now)
        await old.once()
        stored = await services.ledger.read(reservations.read)
        seen = services.reservations.seen_by(Asker("root", "user", admin=True), cancelled=True)
        assert {each.id for each in stored} == {each.id for each in seen}
        return sorted(each.name for each in stored)

    assert await kept_at(at) == ["lab", "off", "series"]
    assert await kept_at(at + timedelta(seconds=1)) == ["series"]
    assert (await book(teacher))["id"] != lab["id"], "its name is free again"
    assert await kept_at(at + timedelta(weeks=6)) == []
    happened = await services.ledger.read(events, None, "")
    assert happened == []
    error = await refused(teacher.call("GET", f"reservations/{series['id']}"))
    assert error.status == 404


def series(**changed):
    return {"name": "series", "repeat": "FREQ=WEEKLY;COUNT=4", **changed}


async def cancel_second(teacher, made):
    one = {"window": {"at": f"{WEEK2}T14:00", "cancelled": True}}
    return await teacher.call("PATCH", f"reservations/{made['id']}", one)


CHANGES = [
    ({"repeat": "FREQ=WEEKLY;COUNT=5"}, [DAY, WEEK3]),
    ({"start": f"{DAY}T15:00", "end": "17:00"}, [DAY, WEEK3]),
    ({"zone": "Europe/Paris"}, [DAY, WEEK3]),
    (
        {"start": f"{MONDAY + timedelta(days=1)}T14:00"},
        [str(MONDAY + timedelta(days=n)) for n in (1, 15)],
    ),
    ({"start": f"{WEEK2}T14:00"}, [WEEK3]),
]


async def test_a_window_that_was_cancelled_or_left_out_stays_so_when_its_series_changes(site):
    teacher, week4 = prof(site), str(MONDAY + timedelta(weeks=3))
    for change, shown in CHANGES:
        made = await book(teacher, **series(without=[week4]))
        await cancel_second(teacher, made)
        after = await teacher.call("PATCH", f"reservations/{made['id']}", change)
        days = [w["local_start"][:10] for w in after["windows"]]
        assert days[: len(shown)] == shown
        assert week4 not in days
        assert after["notes"] == []
        await teacher.call("DELETE", f"reservations/{made['id']}", {})


async def test_a_window_that_was_prolonged_moves_with_its_series(site):
    teacher = prof(site)
    made = await book(teacher, **series())
    longer = {"window": {"at": f"{WEEK2}T14:00", "end": "16:30"}}
    await teacher.call("PATCH", f"reservations/{made['id']}", longer)
    after = await teacher.call("PATCH", f"reservations/{made['id']}", {"start": f"{DAY}T15:00"})
    shown = [(w["local_start"][11:], w["local_end"][11:]) for w in after["windows"][:2]]
    assert shown == [("15:00", "17:00"), ("15:00", "17:30")]
    # Where it is said anew there is nothing of before.
    whole = {"repeat": "", "start": f"{DAY}T09:00", "end": "10:00"}
    after = await teacher.call("PATCH", f"reservations/{made['id']}", whole)
    assert (len(after["windows"]), after["changed"]) == (1, [])


SLIPS = [
    ({"start": DAY}, "is no time that can be used"),
    ({"end": "14:00"}, "that is not later"),
    ({"zone": "right/Europe/Berlin"}, "There is no time zone"),
    ({"zone": "localtime"}, "There is no time zone"),
    ({"zone": "Berlin"}, "Did you mean Europe/Berlin?"),
    ({"zone": "Europe/Berln"}, "Did you mean Europe/Berlin?"),
    ({"gpu_class": "t4"}, "There is no class 't4'. Reserve one of: gpu."),
    ({"lead": "5h"}, "A lead of 5 h is too long. At most 1 h is possible here."),
]


async def test_a_slip_of_the_pen_is_refused_with_what_may_be_meant(site):
    for changed, said in SLIPS:
        assert said in str(await refused(book(prof(site), **changed)))


async def test_what_may_not_be_meant_is_noted(site):
    gap = MONDAY.replace(day=31)
    gap -= timedelta(days=(gap.weekday() + 1) % 7)  # the last Sunday of March
    extra = {"stu": "10m", "ann": "10m"}
    names = {"named": ["stu", "stuu"], "extra_time": extra}
    made = await book(prof(site), start=f"{gap}T02:30", end="05:00", **names)
    assert made["notes"] == [
        f"The clocks skip {gap:%a %d %b %Y} 02:30: that session begins at 03:30.",
        "stuu is not in the group cs101.",
        "ann is not in the group cs101.",
    ]
    admin = site.client(site.hub.admin_token())
    nobody = await book(admin, group="cs999")
    assert nobody["notes"] == ["Nobody is in the group cs999 at present."]


async def test_of_several_the_one_that_is_wrong_is_named(site):
    teacher, other = prof(site), {**LAB, "name": "other"}
    bodies = {"reservations": [LAB, {**other, "start": "5.10.2026"}]}
    error = await refused(teacher.call("POST", "reservations/check", bodies))
    assert str(error).startswith("other: '5.10.2026' is no time that can be used.")
    # Two of a name would be one, changed by the other.
    error = await refused(
        teacher.call("POST", "reservations/check", {"reservations": [LAB, other, LAB]})
    )
    assert error.reason == "name_taken"
    assert "2 reservations of cs101 are called 'lab'." in str(error)


async def test_no_window_that_is_open_is_said(site):
    teacher = prof(site)
    made = await book(teacher)
    path = f"reservations/{made['id']}"
    error = await refused(teacher.call("PATCH", path, {"window": {"end_now": True}}))
    assert str(error).startswith("None of its sessions is in progress. Name one in `at`")


async def test_a_lab_whose_class_is_taken_away_is_told_before_and_after(site):
    teacher, admin = prof(site), site.client(site.hub.admin_token())
    made = await book(teacher, contact=["prof@example.org"])
    without = POLICY.replace("classes: {gpu:", "classes: {other:")
    said = "lab of cs101 has no GPUs: class 'gpu' is not offered."
    checked = await admin.call("POST", "policy/check", {"text": without})
    assert said in checked["effects"]
    assert said not in (await admin.call("POST", "policy/check", {"text": POLICY}))["effects"]
    await site.service.services.policies.save(without, "root", None)
    told = []
    watch = site.service.services.reservation_watch
    watch.tell = told.append
    await watch.look()
    await watch.look()
    assert [(each.sentence, each.to) for each in told] == [(said, ("prof@example.org",))]
    assert said in watch.alerts()
    seen = await teacher.call("GET", f"reservations/{made['id']}")
    assert seen["sentence"] == f"{said} Change its class, or cancel it."
    assert {(w["seats"], w["reserved"]) for w in seen["windows"]} == {(0, 2)}
    changed = await teacher.call("PATCH", f"reservations/{made['id']}", {"gpu_class": "other"})
    assert changed["sentence"].startswith("2 seats of other")
    await watch.look()
    assert watch.alerts() == []
