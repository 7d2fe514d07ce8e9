"""A timetable from a file: said first, then done as a whole; and as a calendar, both ways."""

import asyncio
from datetime import UTC, datetime, timedelta

import icalendar
import pytest
from tornado.httpclient import AsyncHTTPClient

from gpulease.cli import main
from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.ics_read import from_ics
from gpulease.policy.document.reservations_file import KEYS, completed, read
from gpulease.service.schemas.reservation_bodies import ReservationBody
from tests.service.kit import running, works_out_here
from tests.service.test_reservations import DAY, MONDAY, POLICY, WEEK2, book, prof

FILE = f"""\
group: cs101
gpu_class: gpu
zone: Europe/Berlin
reservations:
  lab:
    seats: 2
    start: {DAY} 14:00
    end: 16:00
    repeat: FREQ=WEEKLY;COUNT=4
    without: [{WEEK2}]
  exam: {{seats: 3, start: {DAY} 16:00, end: 18:00, exam: true, extra_time: {{ann: 30m}}}}
"""


@pytest.fixture
async def site(hub, tmp_path, monkeypatch):
    works_out_here(monkeypatch)
    first = tmp_path / "policy.yaml"
    first.write_text(POLICY)
    async with running(hub, tmp_path, gpus=3, first_policy_file=first) as found:
        token = hub.token("prof", "custom:gpulease:reserve!group=cs101")
        monkeypatch.setenv("GPULEASE_SERVICE_URL", found.url)
        monkeypatch.setenv("GPULEASE_TOKEN", token)
        yield found


async def apply(path, text, *words):
    """Run the command as a person does, with a loop of its own."""
    path.write_text(text)
    return await asyncio.to_thread(main, ["reservations", "apply", str(path), *words])


async def names(site):
    found = await prof(site).call("GET", "reservations")
    return {each["name"]: each["version"] for each in found["items"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["The document is empty or not a mapping. Begin with the key reservations."]),
        ("reservations: [{name: a}]", [
            "reservations must be a mapping. Write `name: value` lines below it.",
        ]),
        ("reservations: {}", [
            "reservations is missing or empty. Name at least one entry under reservations.",
        ]),
    ],
)  # fmt: skip
def test_what_is_no_list_of_reservations_is_said_once(text, said):
    bodies, findings = read(text)
    assert bodies == []
    assert [f"{each.message} {each.next_step}" for each in findings] == said


async def test_a_dry_run_says_what_would_be_and_does_nothing(site, tmp_path, capsys):
    assert await apply(tmp_path / "labs.yaml", FILE, "--dry-run") == 0
    said = capsys.readouterr().out
    assert f"lab: new, 2 x gpu for cs101, 3 sessions ahead, the first at {DAY} 14:00" in said
    assert "nothing was changed" in said
    assert await names(site) == {}


async def test_a_file_is_applied_and_again_only_what_it_changes(site, tmp_path, capsys):
    path = tmp_path / "labs.yaml"
    assert await apply(path, FILE) == 0
    assert await names(site) == {"lab": 1, "exam": 1}
    assert await apply(path, FILE.replace("seats: 2", "seats: 1")) == 0
    assert "exam: unchanged" in capsys.readouterr().out
    assert await names(site) == {"lab": 2, "exam": 1}
    assert await apply(path, FILE.split("  exam:", maxsplit=1)[0], "--prune") == 0
    assert "exam: not in the file, is cancelled" in capsys.readouterr().out
    # What the file does not say any more is as if it had never been said: two seats again.
    assert await names(site) == {"lab": 3}


async def test_what_is_over_is_not_cancelled_and_an_open_window_is_named(site, tmp_path, capsys):
    path, now = tmp_path / "labs.yaml", datetime.now(UTC)
    at = {"zone": "UTC", "start": f"{now:%Y-%m-%dT%H:%M}"}
    at["end"] = f"{now + timedelta(hours=2):%Y-%m-%dT%H:%M}"
    over = await book(prof(site), name="over", seats=1, **at)
    await book(prof(site), name="still", seats=1, **at)
    ended = {"window": {"end_now": True}}
    await prof(site).call("PATCH", f"reservations/{over['id']}", ended)
    assert await apply(path, FILE, "--prune", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "over:" not in said
    assert "still: not in the file, is cancelled, also the session in progress" in said
    assert await apply(path, FILE, "--prune") == 0
    assert set(await names(site)) == {"lab", "exam", "over"}


async def test_nothing_is_done_unless_all_of_it_fits(site, tmp_path, capsys):
    text = FILE.replace("16:00, end: 18:00", "15:00, end: 18:00")
    assert await apply(tmp_path / "labs.yaml", text) == 1
    said = capsys.readouterr().out
    assert "exam: does not fit. 3 x gpu will not fit" in said
    assert "Nothing was changed." in said
    assert await names(site) == {}


async def test_a_file_is_one_change_and_stays_no_half(site, tmp_path, capsys):
    """Not so many changes in a minute are allowed as it has reservations; all of it is made."""
    now = site.service.services.policies
    text = POLICY + "limits: {changes_per_minute: 2}\n"
    await now.save(text, "root", None)
    days = [str(MONDAY + timedelta(days=n)) for n in range(6)]
    entries = [
        f"  d{n}: {{seats: 1, start: {day} 09:00, end: 10:00}}\n" for n, day in enumerate(days)
    ]
    file = FILE.split("  lab:", maxsplit=1)[0] + "".join(entries)
    assert await apply(tmp_path / "days.yaml", file) == 0
    assert await names(site) == {f"d{n}": 1 for n in range(6)}
    capsys.readouterr()
    assert await apply(tmp_path / "days.yaml", file) == 0
    assert capsys.readouterr().out.count(": unchanged") == 6


async def test_what_is_cancelled_makes_room_for_the_rest(site, tmp_path, capsys):
    path = tmp_path / "labs.yaml"
    assert await apply(path, FILE) == 0
    other = FILE.replace("  exam:", "  test:")
    assert await apply(path, other, "--dry-run") == 1, "the exam has its GPUs"
    assert await apply(path, other, "--dry-run", "--prune") == 0
    assert await names(site) == {"lab": 1, "exam": 1}
    assert await apply(path, other, "--prune") == 0
    assert await names(site) == {"lab": 1, "test": 1}


async def test_labs_change_places(site, tmp_path, capsys):
    """Each has all GPUs, so each is in the other's way until both have moved."""
    path, head = tmp_path / "labs.yaml", FILE.split("  lab:", maxsplit=1)[0]
    entry = "  {}: {{seats: 3, start: {} {}, end: {}}}\n"

    def both(*times):
        lines = (entry.format(name, DAY, *each) for name, each in zip("ab", times, strict=True))
        return head + "".join(lines)

    first = both(("10:00", "12:00"), ("12:00", "14:00"))
    assert await apply(path, first) == 0
    assert await apply(path, both(("12:00", "14:00"), ("10:00", "12:00"))) == 0
    assert await names(site) == {"a": 2, "b": 2}
    # Both at one time do not fit, whatever each had before.
    assert await apply(path, both(("11:00", "13:00"), ("10:00", "12:00"))) == 1
    capsys.readouterr()
    assert await apply(path, both(("11:00", "12:00"), ("10:00", "12:00"))) == 1
    assert "a: does not fit" in capsys.readouterr().out
    assert await names(site) == {"a": 2, "b": 2}


async def test_mistakes_of_a_file_are_named_with_their_lines(site, tmp_path, capsys):
    text = FILE.replace("seats: 2", "seets: 2").replace("exam: true", "exam: perhaps")
    path = tmp_path / "labs.yaml"
    assert await apply(path, text) == 2
    said = capsys.readouterr().out
    assert f"{path}:6:5: reservations.lab has no key 'seets'." in said
    assert "'perhaps' is neither true nor false" in said


def test_a_file_knows_every_member_of_a_reservation():
    members = set(ReservationBody.model_fields) - {"name", "window", "changed", "base_version"}
    assert set(KEYS) == members
    (lab, exam), findings = read(FILE)
    assert findings == []
    assert set(lab) == set(exam) == members | {"name"}
    assert (lab["start"], lab["end"], exam["exam"]) == (f"{DAY} 14:00", "16:00", True)


async def test_a_calendar_gives_back_what_was_reserved(site, tmp_path, capsys):
    rule = "FREQ=WEEKLY;COUNT=4"
    also = f"{MONDAY + timedelta(days=2)}T09:00"
    made = await book(prof(site), repeat=rule, without=[WEEK2], also=[also])
    headers = {"Authorization": f"token {site.hub.page_token('stu')}"}
    answer = await AsyncHTTPClient().fetch(f"{site.url}api/reservations.ics", headers=headers)
    text = answer.body.decode()
    assert answer.headers["Content-Type"] == "text/calendar; charset=utf-8"
    calendar = icalendar.Calendar.from_ical(text)
    assert [str(zone["TZID"]) for zone in calendar.walk("VTIMEZONE")] == ["Europe/Berlin"]
    (members,) = from_ics(text, datetime.now(UTC)).reservations
    assert (members["zone"], members["repeat"], members["seats"]) == ("Europe/Berlin", rule, 2)
    # Cancelled, and made again from the calendar: the same windows.
    await prof(site).call("DELETE", f"reservations/{made['id']}", {})
    assert await apply(tmp_path / "labs.ics", text) == 0
    (again,) = (await prof(site).call("GET", "reservations"))["items"]
    assert again["windows"] == made["windows"]


EVENT = """\
BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:Lab
DTSTART;TZID=Europe/Berlin:20260302T140000
DTEND;TZID=Europe/Berlin:20260302T160000
END:VEVENT
END:VCALENDAR
"""


async def test_a_calendar_is_sent_and_reserved_as_a_whole(site):
    teacher = prof(site)
    day = f"{MONDAY:%Y%m%d}"
    text = EVENT.replace("20260302", day)
    late = text.replace("SUMMARY:Lab", "SUMMARY:Late")
    both = text.replace("END:VCALENDAR\n", "") + late.partition("BEGIN:VCALENDAR\n")[2]
    body = {"calendar": both, "group": "cs101", "gpu_class": "gpu", "seats": 2}
    dry = await teacher.call("POST", "reservations.ics", body)
    assert (dry["done"], [each["fits"] for each in dry["items"]]) == (False, [True, False])
    refused = await teacher.call("POST", "reservations.ics", {**body, "dry_run": False})
    assert (refused["done"], await names(site)) == (False, {}), "all of it or none"
    body = {**body, "seats": 1, "dry_run": False}
    done = await teacher.call("POST", "reservations.ics", body)
    assert (done["done"], await names(site)) == (True, {"Lab": 1, "Late": 1})
    again = await teacher.call("POST", "reservations.ics", body)
    assert (again["done"], await names(site)) == (True, {"Lab": 1, "Late": 1}), "nothing is new"
    stranger = site.client(site.hub.page_token("stu"))
    with pytest.raises(GPULeaseError) as caught:
        await stranger.call("POST", "reservations.ics", body)
    assert caught.value.reason == "may_not_reserve"
    with pytest.raises(GPULeaseError, match="seats is missing"):
        await teacher.call("POST", "reservations.ics", {**body, "seats": None})


async def test_a_moved_window_survives_the_way_through_a_calendar(site, tmp_path, capsys):
    """Exported, cancelled, made again; and what a calendar cannot say is not taken away by it."""
    made = await book(prof(site), repeat="FREQ=WEEKLY;COUNT=3", exam=True, title="The exam")
    later = {"at": f"{WEEK2}T14:00", "start": f"{WEEK2}T15:00", "end": "17:00"}
    moved = await prof(site).call("PATCH", f"reservations/{made['id']}", {"window": later})
    headers = {"Authorization": f"token {site.hub.page_token('stu')}"}
    answer = await AsyncHTTPClient().fetch(f"{site.url}api/reservations.ics", headers=headers)
    text = answer.body.decode()
    assert await apply(tmp_path / "labs.ics", text) == 0
    assert f"{made['name']}: unchanged" in capsys.readouterr().out
    assert await apply(tmp_path / "labs.ics", text.replace("SEATS:2", "SEATS:1")) == 0
    (now,) = (await prof(site).call("GET", "reservations"))["items"]
    assert (now["seats"], now["exam"], now["title"]) == (1, True, "The exam")
    await prof(site).call("DELETE", f"reservations/{made['id']}", {})
    assert await apply(tmp_path / "labs.ics", text) == 0
    (again,) = (await prof(site).call("GET", "reservations"))["items"]
    assert again["windows"] == moved["windows"]


async def test_what_is_left_out_of_a_calendar_is_said(site, tmp_path, capsys):
    text = EVENT.replace("20260302", f"{MONDAY:%Y%m%d}")
    holiday = text.replace("T140000", "").replace(";TZID=Europe/Berlin", ";VALUE=DATE")
    holiday = holiday.replace("T160000", "").replace("SUMMARY:Lab", "SUMMARY:Holiday")
    both = text.replace("END:VCALENDAR\n", "") + holiday.partition("BEGIN:VCALENDAR\n")[2]
    words = ("--group", "cs101", "--class", "gpu", "--seats", "2")
    assert await apply(tmp_path / "Term.ICS", both, *words) == 0
    assert "left out: Holiday (" in capsys.readouterr().out
    body = {"calendar": both, "group": "cs101", "gpu_class": "gpu", "seats": 2}
    dry = await prof(site).call("POST", "reservations.ics", body)
    assert [each.partition(" ")[0] for each in dry["left_out"]] == ["Holiday"]
    assert await names(site) == {"Lab": 1}


def test_what_a_calendar_does_not_say_has_to_be_given():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(GPULeaseError, match="group, gpu_class, seats is missing"):
        completed(from_ics(EVENT, now), {})
    common = {"group": "cs101", "gpu_class": "t4", "seats": 3}
    (body,) = completed(from_ics(EVENT, now), common)
    assert (body["group"], body["seats"], body["name"]) == ("cs101", 3, "Lab")
