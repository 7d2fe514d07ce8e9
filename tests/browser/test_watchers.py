"""The pages of instructors and admins in a real browser: leases, ending one, policy, health."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gpulease.service.pages import PageReader
from gpulease.service.schemas.shapes import HealthView
from tests.pages.stage import Stage, gpu_class, lease, soon

pytestmark = pytest.mark.browser
ADMIN = PageReader("root", admin=True)
TEXT = "#policy-text .cm-content"
FITS_NOT = {
    "items": [
        {"fits": False, "problem": {"title": "It does not fit.", "next_step": "", "numbers": {}}}
    ]
}


def people(stage: Stage) -> None:
    for number, (user, state) in enumerate(
        [("grace", "active"), ("joan", "warned"), ("linus", "queued")]
    ):
        stage.put(lease(state, id=f"l{number}", user=user, busy_share=0.25))


def test_an_instructor_sees_everybody_of_the_group_by_name(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    people(stage)
    stage.put(lease(id="another", user="stranger"))
    page.goto(stage.url + "group")
    page.wait_for_selector("tbody tr")
    rows = page.locator("tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows] == ["linus", "grace", "joan", "mary"]
    assert "has had no GPU yet" in rows[3]
    assert page.locator(".gl-filters button").all_inner_texts() == [
        "All 4", "With a GPU 2", "Waiting 1", "Had one 0", "None yet 1",
    ]  # fmt: skip
    stage.put(lease("ended", id="l0", user="grace", busy_share=0.25))
    page.wait_for_selector(".gl-filters >> text=With a GPU 1")
    assert "Had one 1" in page.inner_text(".gl-filters")
    assert "None yet 1" in page.inner_text(".gl-filters")
    page.click("text=Waiting 1")
    page.wait_for_selector("tr:has-text('joan')", state="detached")
    assert page.locator("tbody tr").count() == 1
    assert page.is_visible("#simulated")


def test_seats_are_reserved_of_whole_gpus_only(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    stage.classes = []
    stage.answers["POST reservations/check"] = (200, FITS_NOT)
    page.goto(stage.url + "group")
    page.click("[data-action=reserve]")
    page.wait_for_selector("#book-dialog:visible")
    # The classes may come after somebody has opened the form.
    stage.put_classes([gpu_class(name="t4"), gpu_class(name="part", percent=70, steps=[40])])
    page.wait_for_selector("#book-class option", state="attached")
    options = page.locator("#book-class option")
    assert options.evaluate_all("all => all.map(each => each.value)") == ["t4"]
    page.wait_for_selector("#book-found >> text=It does not fit.")


def test_a_seat_for_everybody_also_where_the_members_come_after_the_form(
    stage: Stage, page: Any
) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    stage.classes = [gpu_class(name="t4", total=8)]
    stage.answers["POST reservations/check"] = (200, FITS_NOT)
    held: list[Any] = []
    page.route("**/api/groups/members?*", lambda route: held.append(route))
    with page.expect_request("**/api/groups/members?*"):
        page.goto(stage.url + "group")
    page.click("[data-action=reserve]")
    page.wait_for_selector("#book-class option", state="attached")
    assert page.input_value("#book-seats") == "1"
    held[0].continue_()
    page.wait_for_function("() => document.getElementById('book-seats').value === '4'")


def test_what_is_wrong_in_the_booking_form_is_said_by_its_field(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    wrong = {"member": "reservations.0.contact.1", "problem": "it must be an e-mail address"}
    refusal = {
        "reason": "invalid_body",
        "title": "reservations.0 (lab).contact.1: it must be an e-mail address.",
        "numbers": {"wrong": [wrong]},
    }
    stage.answers["POST reservations/check"] = (422, refusal)
    page.goto(stage.url + "group")
    page.click("[data-action=reserve]")
    page.fill("#book-name", "lab")
    page.fill("#book-start", "2030-10-01T14:00")
    page.fill("#book-end", "2030-10-01T16:00")
    page.click("#book-more summary")
    page.fill("#book-contact", "a@b.example, me")
    found = page.locator("#book-found")
    said = "Mail is sent to “me”: it must be an e-mail address."
    found.get_by_text(said, exact=True).wait_for()
    page.fill("#book-extra", "ada: 15, nobody")
    found.get_by_text("“nobody” is not an extra time.").wait_for()
    assert "such as ada: 15" in found.inner_text()
    page.fill("#book-extra", "ada: 15")
    found.get_by_text(said, exact=True).wait_for()
    assert page.is_disabled("#book-submit")
    # What fitted when it was asked may be refused when it is saved.
    fits = {"fits": True, "reservation": reserved(datetime.now(UTC))}
    stage.answers["POST reservations/check"] = (200, {"items": [fits]})
    stage.answers["POST reservations"] = (422, refusal)
    page.fill("#book-seats", "2")
    found.get_by_text("It fits.").wait_for()
    page.click("#book-submit")
    found.get_by_text(said, exact=True).wait_for()
    conflict = {"reason": "reservation_conflict", "title": "3 x t4 will not fit.", "numbers": {}}
    stage.answers["POST reservations"] = (409, conflict)
    page.fill("#book-seats", "3")
    found.get_by_text("It fits.").wait_for()
    page.click("#book-submit")
    found.get_by_text("It does not fit. 3 x t4 will not fit.").wait_for()


def test_the_days_of_the_calendar_name_their_month(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    page.goto(stage.url + "group")
    page.wait_for_selector(".ec-col-head time, .ec-day time")
    heads = page.locator(".ec-col-head").all_inner_texts()
    assert heads
    assert not [each for each in heads if "/" in each]
    assert all(re.search(r"[A-Z][a-z]{2} \d", each) for each in heads if each.strip())


def test_one_of_several_groups_is_chosen(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101", "cs102"))
    stage.groups["cs102"] = ["rosalind"]
    page.goto(stage.url + "group")
    page.wait_for_selector("tbody tr:has-text('grace')")
    page.select_option("#group-choice", "cs102")
    page.wait_for_selector("tbody tr:has-text('rosalind')")
    assert page.locator("tbody tr").count() == 1
    assert page.get_attribute("#ics", "href").endswith("reservations.ics?group=cs102")


def reserved(first: datetime, /, **changes: Any) -> dict[str, Any]:
    """Return a reservation of a window of ninety minutes from then on."""
    window = {
        "at": "a", "start": first.isoformat(), "end": (first + timedelta(minutes=90)).isoformat(),
        "local_start": f"{first:%Y-%m-%dT%H:%M}", "local_end": f"{first:%Y-%m-%dT%H:%M}",
        "state": "coming", "seats": 3, "reserved": 3, "claimed": 0,
    }  # fmt: skip
    found = {"id": "r1", "version": 1, "name": "night", "title": "", "group": "cs101"}
    found |= {"gpu_class": "sim", "zone": "UTC", "manages": True, "windows": [window]}
    return (
        found | {"windows_ahead": 1, "gpu_hours_ahead": 4.5, "exam": False, "image": ""} | changes
    )


def test_labs_differ_by_colour_and_attendance_is_people_by_sessions(
    stage: Stage, page: Any
) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    start = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    (window,) = reserved(start)["windows"]
    before = f"{start - timedelta(weeks=1):%Y-%m-%dT12:00}"
    earlier = window | {"at": "b", "state": "over", "local_start": before}
    lab = {"id": "r2", "name": "lab", "windows": [earlier, window | {"state": "over"}]}
    stage.reservations = [reserved(start + timedelta(hours=3)), reserved(start, **lab)]
    here = window["local_start"]
    came = f"{here},grace,{here},,1,60,60\n{here},visitor,{here},,1,60,0\n{before},joan,,,0,0,0\n"
    text = "window,user,came,left,leases,held_seconds,busy_seconds\n" + came
    page.route("**/attendance.csv", lambda r: r.fulfill(body=text, content_type="text/csv"))
    page.goto(stage.url + "group")
    page.wait_for_selector(".ec-event >> nth=1")
    edges = page.locator(".ec-event").evaluate_all(
        "all => all.map(each => getComputedStyle(each).borderLeftColor)"
    )
    assert len(set(edges)) == 2
    page.click(".ec-event:has-text('lab')")
    page.wait_for_selector(".gl-attendance")
    rows = [row.split() for row in page.locator(".gl-attendance tr").all_inner_texts()]
    day = f"{start - timedelta(weeks=1):%b} {(start - timedelta(weeks=1)).day}"
    assert rows[0][:3] == ["Who", *day.split()]
    assert {row[0]: " ".join(row[-3:]) for row in rows[1:-1]} == {
        "grace": "1 of 2", "joan": "0 of 2", "linus": "0 of 2", "mary": "0 of 2",
        "visitor": "1 of 2",
    }  # fmt: skip
    assert rows[-1] == ["Came", "0", "of", "5", "2", "of", "5"]


@pytest.mark.parametrize(("total", "seats"), [(2, "2"), (9, "4")])
def test_a_new_reservation_has_a_seat_for_each_member_as_far_as_there_are_gpus(
    stage: Stage, page: Any, total: int, seats: str
) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    stage.classes = [gpu_class(total=total), gpu_class(name="big", total=3)]
    stage.answers["POST reservations/check"] = (200, FITS_NOT)
    page.goto(stage.url + "group")
    page.wait_for_selector("tr:has-text('mary')")
    page.click("[data-action=reserve]")
    assert page.input_value("#book-seats") == seats
    page.select_option("#book-class", "big")
    assert page.input_value("#book-seats") == "3"
    page.fill("#book-seats", "1")
    page.select_option("#book-class", "sim")
    assert page.input_value("#book-seats") == "1"


def test_a_window_over_midnight_says_when_it_ends(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    eve = datetime.now(UTC).replace(hour=23, minute=0, second=0, microsecond=0)
    stage.reservations = [reserved(eve)]
    page.goto(stage.url + "group")
    page.wait_for_selector(".ec-event .gl-window-time")
    said = page.locator(".ec-event .gl-window-time").all_inner_texts()
    assert {" ".join(each.split()) for each in said} == {"11:00 PM \N{EN DASH} 12:30 AM"}


@pytest.mark.parametrize(
    ("locale", "times"), [("en-US", ["1:00 PM", "1:15 PM"]), ("de-DE", ["13:00", "13:15"])]
)
def test_times_of_a_session_are_written_by_the_readers_clock(
    stage: Stage, chromium: Any, locale: str, times: list[str]
) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    there = datetime.now(UTC) + timedelta(hours=1)  # the reader's day: their week is shown
    noon = there.replace(hour=12, minute=0, second=0, microsecond=0)
    of = reserved(noon)
    here = {"local_start": f"{noon:%Y-%m-%dT13:00}", "local_end": f"{noon:%Y-%m-%dT14:30}"}
    of["windows"][0] |= here | {
        "state": "lead", "first_gpus": (noon + timedelta(minutes=15)).isoformat(),
    }  # fmt: skip
    stage.reservations = [of | {"zone": "Africa/Lagos"}]
    context = chromium.new_context(locale=locale, timezone_id="Africa/Lagos")
    page = context.new_page()
    page.goto(stage.url + "group")
    page.click(".ec-event:has-text('night')")
    page.wait_for_selector("#session-dialog .gl-facts")
    shown = " ".join(page.inner_text("#session-dialog").split())
    assert not [each for each in times if each not in shown]
    context.close()


@pytest.mark.parametrize(
    ("zone", "hour"), [("Asia/Tokyo", 22), ("Pacific/Honolulu", 3), ("Europe/Berlin", 14)]
)
def test_the_calendar_opens_where_the_next_window_is(
    stage: Stage, profile: Any, zone: str, hour: int
) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    here = datetime.now(ZoneInfo(zone)).replace(hour=hour, minute=0, second=0, microsecond=0)
    stage.reservations = [reserved(here.astimezone(UTC))]
    context = profile.browser.new_context(timezone_id=zone)
    page = context.new_page()
    page.goto(stage.url + "group")
    page.wait_for_selector(".ec-event")
    seen = """() => {
        const [box, event] = [".ec-main", ".ec-event"].map(
            each => document.querySelector(each).getBoundingClientRect());
        return event.top >= box.top && event.bottom <= box.bottom;
    }"""
    page.wait_for_function(seen)
    context.close()


def test_a_window_says_whom_it_is_for_and_its_form_changes_that(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    start = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    of = {"start": f"{start:%Y-%m-%dT12:00}", "end": f"{start:%Y-%m-%dT13:30}", "seats": 3}
    people = {"named": ["ada", "alan"], "managers": ["tess"], "extra_time": {"ada": 900.0}}
    rest = {"contact": ["ida@example.org"], "idle": 600.0, "exam": True, "repeat": ""}
    stage.reservations = [reserved(start, **of, **people, **rest)]
    fits = {"fits": True, "reservation": stage.reservations[0]}
    stage.answers["POST reservations/check"] = (200, {"items": [fits]})
    stage.answers["PATCH reservations/r1"] = (200, stage.reservations[0])
    page.goto(stage.url + "group")
    page.click(".ec-event")
    facts = " ".join(page.inner_text("#session-about").split())
    assert "Only for ada, alan" in facts
    assert "Extra time ada: 15 min" in facts
    assert "Co-managers tess" in facts
    assert "Mail is sent to ida@example.org" in facts
    assert "Idle time-out 10 min" in facts
    page.click("#session-actions [data-action=edit]")
    assert page.input_value("#book-named") == "ada, alan"  # seen without opening "More"
    assert page.is_visible("#book-named")
    assert page.input_value("#book-extra") == "ada: 15"
    page.fill("#book-named", "ada")
    page.fill("#book-extra", "ada: 30, alan 5, mary: 1h")
    page.fill("#book-managers", "")
    page.fill("#book-idle", "")
    page.click("#book-submit")
    page.wait_for_selector("#book-dialog", state="hidden")
    [sent] = stage.called("PATCH", "reservations/r1")
    assert sent["named"] == ["ada"]
    assert sent["extra_time"] == {"ada": "30m", "alan": "5m", "mary": "1h"}
    assert sent["managers"] == []
    assert sent["idle"] is None  # the class's own again


def test_what_the_form_has_no_field_for_goes_with_a_copy(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    start = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    more = {"seats_per_person": 2, "grace": 300.0, "lead": None, "seats": 3, "repeat": ""}
    stage.reservations = [reserved(start, **more)]
    fits = {"fits": True, "reservation": stage.reservations[0]}
    stage.answers["POST reservations/check"] = (200, {"items": [fits]})
    stage.answers["POST reservations"] = (200, stage.reservations[0])
    stage.classes = []  # they may come later, or have no such class any more
    page.goto(stage.url + "group")
    page.click(".ec-event")
    assert "Only for everybody in cs101" in " ".join(page.inner_text("#session-about").split())
    page.click("#session-actions [data-action=copy]")
    page.fill("#book-end", f"{start:%Y-%m-%dT13:30}")
    page.click("#book-submit")
    page.wait_for_selector("#book-dialog", state="hidden")
    [sent] = stage.called("POST", "reservations")
    assert (sent["seats_per_person"], sent["grace"], sent["name"]) == (2, 300.0, "night-copy")
    assert sent["gpu_class"] == stage.reservations[0]["gpu_class"]
    assert "lead" not in sent


def test_an_admin_ends_a_lease_with_a_reason(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    people(stage)
    page.goto(stage.url + "admin")
    page.click("[aria-label='End the lease of grace']")
    assert page.evaluate("document.activeElement.id") == "end-note"
    page.click("#end-submit")
    assert page.is_visible("#end-dialog")  # no reason, no end
    page.fill("#end-note", "   ")
    page.click("#end-submit")
    assert page.is_visible("#end-dialog")
    assert not [call for call in stage.calls if call[0] == "DELETE"]
    page.fill("#end-note", "Maintenance at 15:00")
    page.click("#end-submit")
    page.wait_for_selector('tr[data-key="l0"][data-state="draining"]')
    assert stage.called("DELETE", "leases/l0") == [{"note": "Maintenance at 15:00", "force": False}]
    assert not page.is_visible("#end-dialog")
    assert page.is_disabled("[aria-label='End the lease of grace']")


def test_an_instructor_ends_all_of_the_group_with_a_question(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    people(stage)
    stage.put(lease(id="another", user="stranger"))
    ended = [lease("draining", id="l0", user="grace"), lease("draining", id="l1", user="joan")]
    stage.answers["DELETE leases"] = (200, {"items": ended})
    page.goto(stage.url + "group")
    page.wait_for_selector("tbody tr:has-text('grace')")
    page.click("#end-all")
    asked = page.inner_text("#end-form")
    assert "End all leases of cs101?" in asked
    assert "3 leases and requests" in asked
    page.click("#end-cancel")
    page.click("[aria-label='End the lease of grace']")
    assert "End this lease" in page.inner_text("#end-form")
    page.click("#end-cancel")
    page.click("#end-all")
    page.fill("#end-note", "The lab is over.")
    page.click("#end-submit")
    page.wait_for_selector('tr[data-key="l1"][data-state="draining"]')
    assert stage.called("DELETE", "leases") == [{"group": "cs101", "note": "The lab is over."}]


def test_an_admin_reads_what_cannot_leave(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    said = "The GPU was idle. Cannot be copied back: `g` (a generator)."
    stage.put(lease(sentence=said, busy_share=0.5))
    page.goto(stage.url + "admin")
    page.wait_for_selector("text=Cannot be copied back: `g` (a generator).")
    page.wait_for_selector("text=in use 50% of its time")


def test_the_dialog_is_left_by_escape(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    people(stage)
    page.goto(stage.url + "admin")
    page.focus("[aria-label='End the lease of joan']")
    page.keyboard.press("Enter")
    page.wait_for_selector("#end-dialog:visible")
    page.keyboard.press("Escape")
    page.wait_for_selector("#end-dialog", state="hidden")
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == "End the lease of joan"


def test_many_leases_are_paged(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    for number in range(60):
        stage.leases[f"l{number}"] = lease(id=f"l{number}", user=f"user-{number}")
    stage.ended = [lease("ended", id=f"e{n}") for n in range(30)]
    page.goto(stage.url + "admin")
    page.wait_for_selector("#table >> text=1 to 25 of 60")
    assert page.locator("#table tbody tr").count() == 25
    page.click("#table >> button:has-text('Older')")
    page.wait_for_selector("#table >> text=26 to 50 of 60")
    page.click("[data-tab=history]")
    page.click("#ended >> button:has-text('Older')")
    page.wait_for_selector("#ended >> text=26 to 30 of 30")


def test_a_row_leaves_when_its_lease_ends(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    people(stage)
    page.goto(stage.url + "admin")
    page.wait_for_selector('tr[data-key="l1"]')
    gone = lease("ended", id="l1", user="joan")
    stage.ended = [gone]
    stage.put(gone)
    page.wait_for_selector('#table tr[data-key="l1"]', state="detached")
    page.click("[data-tab=history]")
    page.wait_for_selector('#ended tr[data-key="l1"]')


def test_health_is_shown_part_by_part(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    page.goto(stage.url + "health")
    page.wait_for_selector("dl >> text=Devices")
    assert "local" in page.inner_text("#health")
    assert page.inner_text("[data-key=device_problem] dd") == "none"
    parts = page.locator("#health [data-key]")
    keys = parts.evaluate_all("(all) => all.map((one) => one.dataset.key)")
    named = [text.strip() for text in parts.locator("dt").all_inner_texts()]
    assert set(keys) == set(HealthView.__annotations__)
    assert not [name for key, name in zip(keys, named, strict=True) if name == key]
    assert page.inner_text("[data-key=hubs] dd") == "none"
    stage.health["hubs"] = {"lab2": "ok", "x": "the hub does not answer"}
    page.reload()
    page.wait_for_selector("[data-key=hubs] li")
    told = page.locator("[data-key=hubs] li").all_inner_texts()
    assert told == ["lab2: ok", "x: the hub does not answer"]


def incident(number: int, **changed: Any) -> dict[str, Any]:
    told = {
        "at": soon(-60 * number),
        "who": "planner",
        "why": "capacity_taken",
        "sentence": "The GPU was taken by other work before it could be used.",
        "user": f"student-{number}",
        "lease": f"lease-{number}",
        "gpu_class": "a100",
        "note": "0/3 nodes are available",
    }
    return told | changed


def test_incidents_are_told_with_the_clusters_words_page_by_page(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    page.goto(stage.url + "health")
    page.wait_for_selector("#incidents >> text=None.")
    stage.incidents = [incident(number) for number in range(25)]
    page.reload()
    page.wait_for_selector("#incidents tbody tr")
    assert page.locator("#incidents tbody tr").count() == 20
    first = page.inner_text("#incidents tbody tr:first-child")
    assert "student-0" in first
    assert "taken by other work" in first
    assert "0/3 nodes are available" in first
    page.click("#incidents >> text=Older")
    page.wait_for_selector("#incidents >> text=student-24")
    assert page.locator("#incidents tbody tr").count() == 5
    page.set_viewport_size({"width": 320, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize("path", ["admin", "group", "policy", "health"])
def test_it_fits_320_pixels(stage: Stage, page: Any, path: str) -> None:
    stage.reader = ADMIN
    people(stage)
    stage.ended = [lease("ended", end={
        "reason": "forced", "sentence": "x", "note": "n" * 300, "at": soon(-9)})]  # fmt: skip
    stage.policy["text"] = "a: " + "b" * 400
    page.set_viewport_size({"width": 320, "height": 700})
    page.goto(stage.url + path)
    page.wait_for_selector("tbody tr, dl, .gl-out")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_a_phone_shows_the_week_and_a_long_name_whole(stage: Stage, chromium: Any) -> None:
    stage.reader = PageReader("maximilian.mustermann@students.example", admin=True)
    context = chromium.new_context(locale="de", viewport={"width": 360, "height": 700})
    page = context.new_page()
    page.goto(stage.url + "group")
    page.click(".ec-timeGridWeek")
    page.wait_for_selector(".ec-week-view .ec-col-head >> text=Mo")
    cut = "e => [...document.querySelectorAll(e)].filter(e => e.scrollWidth > e.clientWidth).length"
    assert page.evaluate(cut, ".ec-col-head, .ec-col-head *, .gl-nav *") == 0
    name = page.locator(".gl-user").bounding_box()
    assert name["height"] < 60, "two lines at most"
    context.close()


def test_anothers_server_is_not_mine_and_no_data_is_said_once(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.put(lease(user="grace", utilisation=None, verdict="unknown"))
    stage.ended = [lease("ended", id="e0", user="joan")]
    page.goto(stage.url + "admin")
    page.wait_for_selector("#table >> text=default server")
    assert page.inner_text("#table").count("no data") == 1
    page.click("[aria-label='End the lease of grace']")
    assert "on default server" in page.inner_text("#end-who")
    page.keyboard.press("Escape")
    page.click("[data-tab=history]")
    page.wait_for_selector("#ended >> text=default server")
    assert "my server" not in page.inner_text("main")


def test_every_device_is_on_the_map_with_who_and_why(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.devices = [
        {"uuid": f"G{n}", "name": f"T4 {n}", "pool": "cards", "node": f"n{n % 2}", "use": use,
         "memory": 16 << 30, "simulated": True, "user": user, "lease": "", "gpu_class": "t4",
         "why": why}
        for n, (use, user, why) in enumerate([
            ("free", "", ""), ("busy", "grace", "Something computes on it."),
            ("warned", "joan", "Its holder is warned."),
            ("quarantined", "", "It is not healthy."), ("reserved", "", "It is reserved for x."),
        ])
    ]  # fmt: skip
    page.goto(stage.url + "admin")
    page.wait_for_selector(".gl-tile")
    assert page.locator(".gl-shelf h3").all_inner_texts() == [
        "cards · n0 3 devices", "cards · n1 2 devices"
    ]  # fmt: skip
    assert "quarantined 1" in page.inner_text(".gl-legend")
    page.click("[aria-label='T4 2, ends soon, joan']")
    said = page.inner_text(".gl-device")
    assert "joan" in said
    assert "Its holder is warned." in said
    stage.devices[2] |= {"use": "free", "user": "", "why": ""}
    stage.put(lease("ended", id="l9", user="joan"))
    page.wait_for_selector("[aria-label='T4 2, free']")


def test_a_divided_card_is_one_line_with_its_parts(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.devices = [
        {"uuid": f"G{card}::{n:02}", "name": f"A100 {card}", "pool": "cards", "node": "",
         "use": use, "memory": 40 << 30, "simulated": True, "user": user, "lease": "",
         "gpu_class": "", "why": "", "card": f"G{card}", "percent": percent}
        for card, n, use, user, percent in [
            (0, 0, "busy", "grace", 70), (0, 7, "free", "", 30), (1, 0, "free", "", 100),
        ]
    ]  # fmt: skip
    page.goto(stage.url + "admin")
    page.wait_for_selector(".gl-tile")
    assert page.inner_text(".gl-shelf h3") == "cards 2 devices"
    lines = page.locator(".gl-tiles > li")
    assert [" ".join(each.split()) for each in lines.all_inner_texts()] == [
        "in use, 70% grace free, 30% A100 0", "free, 100% A100 1"
    ]  # fmt: skip
    tops = lines.evaluate_all("all => all.map(li => li.getBoundingClientRect().top)")
    assert tops[0] < tops[1], "each card has its own line"
    page.click("[aria-label='A100 0, in use, 70%, grace']")
    assert "70% of a card" in page.inner_text(".gl-device")


def test_five_thousand_leases_and_devices_draw_no_more_than_fits(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    for number in range(5000):
        stage.leases[f"l{number}"] = lease(id=f"l{number}", user=f"user{number}")
    stage.devices = [
        {"uuid": f"G{n}", "name": f"T4 {n}", "pool": "cards", "node": f"n{n // 8}", "use": "busy",
         "memory": 16 << 30, "simulated": True, "user": f"user{n}", "lease": "", "gpu_class": "t4",
         "why": ""}
        for n in range(5000)
    ]  # fmt: skip
    page.goto(stage.url + "admin")
    page.wait_for_selector("#table tbody tr")
    assert page.locator("#table tbody tr").count() == 25
    assert "1 to 25 of 5000" in page.inner_text("#table .gl-pager")
    page.wait_for_selector(".gl-tile >> nth=4999", state="attached")
    kept = page.evaluate("window.tile = document.querySelector('[data-uuid=G4999]'); true")
    stage.put(lease(id="l0", user="user0", busy_share=0.5))
    page.fill("#search", "user4711")
    page.wait_for_selector("#table tbody tr >> text=user4711")
    assert kept
    assert page.evaluate("window.tile.isConnected")
    # What is out of sight is not laid out.
    assert page.evaluate(
        "getComputedStyle(document.querySelector('.gl-shelf')).contentVisibility"
    ) == "auto"  # fmt: skip


def test_the_audit_is_searched(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.audit = [
        {"at": soon(-n), "who": "planner", "why": why, "sentence": f"Because of {why}.",
         "user": user, "lease": f"l{n}", "gpu_class": "t4",
         "source": "active", "target": "warned", "note": ""}
        for n, (why, user) in enumerate([("idle", "grace"), ("idle", "joan"), ("keep", "grace")])
    ]  # fmt: skip
    page.goto(stage.url + "admin#audit")
    page.wait_for_selector("#audit tbody tr:nth-child(3)")
    page.fill("#audit-search", "grace idle")
    page.wait_for_selector("#audit tbody tr:nth-child(2)", state="detached")
    assert "grace" in page.inner_text("#audit tbody tr")
    assert "Because of idle." in page.inner_text("#audit tbody tr")
    page.fill("#audit-search", "nobody")
    page.wait_for_selector("#audit >> text=Nothing is found.")


def test_health_names_what_is_wrong_while_the_service_answers_503(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.health.update(status="error", store="the disk is full")
    page.goto(stage.url + "health")
    page.wait_for_selector("[data-trouble=store] >> text=The database does not take changes.")
    assert "the disk is full" in page.inner_text("[data-trouble=store]")
    assert page.locator("[data-trouble]").count() == 1
    stage.health.update(status="ok", store="ok")
    stage.alerts = [
        {"reason": "stuck", "lease": "l1", "sentence": "Processes 41 of lease l1 live on."},
        {"reason": "no_data", "lease": "l2", "sentence": "No evidence of use has come."},
    ]
    page.reload()
    page.click("text=Put back into service")
    page.wait_for_selector(".alert-danger, .alert-warning >> text=No evidence of use has come.")
    assert page.locator("[data-action=put-back]").count() == 1
    assert ("POST", "leases/l1/put-back", {}) in stage.calls
    stage.alerts = []
    page.reload()
    page.wait_for_selector("text=Everything works.")


def test_health_says_nothing_good_of_a_service_that_does_not_answer(
    stage: Stage, page: Any
) -> None:
    stage.reader = ADMIN
    page.goto(stage.url + "health")
    page.wait_for_selector("text=Everything works.")
    down = {"status": 503, "content_type": "text/html", "body": "the proxy's own page"}
    page.route("**/api/**", lambda route: route.fulfill(**down))
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    page.wait_for_selector("[data-trouble=service]")
    assert "Everything works." not in page.inner_text("main")
    assert "ok" not in page.inner_text("#health")
    page.unroute("**/api/**")
    page.wait_for_selector("text=Everything works.")
    assert page.locator("#gl-alerts .alert").count() == 0
    page.wait_for_selector("#gl-link", state="hidden")


def test_classes_that_share_a_pool_show_its_gpus_once(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    pair = [gpu_class(name=n, title=n, pool="cards", free=0) for n in ("short", "long")]
    parts = [
        gpu_class(name=n, title=n, pool="parts", total=k, free=k, percent=100 // k)
        for n, k in (("half", 2), ("fifth", 5))
    ]
    stage.classes = [*pair, gpu_class(name="own", title="own", pool="own"), *parts]
    page.goto(stage.url + "admin")
    page.wait_for_selector("#classes li")
    cards = [" ".join(each.split()) for each in page.locator("#classes li").all_inner_texts()]
    assert len(cards) == 3
    assert cards[0].count("2 of 2 leased") == 1
    assert "shared by these classes" in cards[0]
    assert "0 of 2 leased" in cards[1]
    assert "0 of 5 leased" in cards[2]


def test_a_cancelled_session_takes_two_clicks_in_two_places(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    start = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    stage.reservations = [reserved(start, windows_ahead=2)]
    stage.answers["PATCH reservations/r1"] = (200, stage.reservations[0])
    page.goto(stage.url + "group")
    page.click(".ec-event")
    first = page.locator("#session-actions [data-action=cancel-one]")
    at = first.bounding_box()
    first.click()
    page.wait_for_selector("#session-ask >> text=Cancel this session? Its GPUs go to others.")
    page.mouse.click(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
    page.click("#session-confirm >> text=Keep it")
    page.wait_for_selector("#session-confirm button", state="detached")
    assert not stage.called("PATCH", "reservations/r1")
    first.click()
    page.click("#session-confirm >> text=Cancel this session")
    page.wait_for_selector("#session-dialog", state="hidden")
    assert stage.called("PATCH", "reservations/r1")[0]["window"] == {"at": "a", "cancelled": True}


def test_what_does_not_fit_is_not_reserved(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    problem = {"title": "Full.", "next_step": "", "numbers": {}, "reason": "reservation_conflict"}
    full = (200, {"items": [{"fits": False, "problem": problem}]})
    of = reserved(datetime.now(UTC)) | {"gpu_hours_ahead": 0.25}
    stage.answers["POST reservations/check"] = full
    page.goto(stage.url + "group")
    page.click("[data-action=reserve]")
    page.wait_for_selector("#book-found >> text=It does not fit. Full.")
    assert page.is_disabled("#book-submit")
    stage.answers["POST reservations/check"] = (200, {"items": [{"fits": True, "reservation": of}]})
    page.fill("#book-seats", "2")
    page.wait_for_selector("#book-found >> text=It fits. 0.25 GPU-hours.")
    assert page.is_enabled("#book-submit")


def test_an_admin_finds_one_of_5000_leases(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    for number in range(5000):
        stage.leases[f"l{number}"] = lease(id=f"l{number}", user=f"user-{number}")
    page.goto(stage.url + "admin")
    page.wait_for_selector("#table >> text=1 to 25 of 5000")
    page.fill("#search", "user-4321 active")
    page.wait_for_selector("#table tbody tr:has-text('user-4321')")
    page.wait_for_selector("#table tbody tr:has-text('user-4320')", state="detached")
    assert page.locator("#table tbody tr").count() == 1
    page.fill("#search", "nobody")
    page.wait_for_selector("#table >> text=Nothing is found.")


def test_an_admin_reads_what_projects_used(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    stage.usage = [
        {"project": "thesis", "hours": 2.0, "gpu_hours": 4.0, "estimated": False},
        {"project": "lab", "hours": 12.26, "gpu_hours": 12.26, "estimated": True},
    ]
    page.goto(stage.url + "admin#usage")
    page.wait_for_selector("#usage tbody tr")
    rows = page.locator("#usage tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows] == ["lab", "thesis"]
    assert "12.3 (estimated)" in rows[0]
    page.select_option("#usage-by", "person")
    page.wait_for_selector("#usage th:has-text('Person')")
    csv = page.get_attribute("#usage a[download]", "href")
    assert csv.endswith("api/usage.csv?by=person")


def test_a_bar_opens_the_leases_that_it_sums_up(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    people = ["ada b&c", "eve"]
    stage.usage = [
        {"person": name, "hours": 1.0, "gpu_hours": 1.0, "estimated": False} for name in people
    ]
    stage.ended = [lease("ended", id=name, user=name) for name in people]
    page.goto(stage.url + "admin#usage")
    page.select_option("#usage-by", "person")
    page.click("#usage tr:has-text('ada b&c') progress")
    page.wait_for_selector("#part-history:visible >> text=ada b&c")
    page.wait_for_selector("#ended tr:has-text('eve')", state="detached")
    assert page.locator("#ended tbody tr").count() == 1
    page.reload()
    page.click("#ended >> text=Show all")
    page.wait_for_selector("#ended tr:has-text('eve')")
    page.go_back()
    page.wait_for_selector("#ended tr:has-text('eve')", state="detached")


def test_an_admin_sees_use_over_time_behind_a_tab(stage: Stage, page: Any) -> None:
    stage.reader = ADMIN
    page.goto(stage.url + "admin")
    page.wait_for_selector("#tab-now[aria-selected=true]")
    page.focus("#tab-now")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#part-usage:visible")
    assert page.url.endswith("admin#usage")
    page.wait_for_selector("#charts canvas >> nth=1")
    used, waited = page.locator("#charts figure").all_inner_texts()
    assert "On average 1.5 of 2 GPUs were leased, and in use 50% of that time." in used
    assert "the longest wait was 1\xa0min\xa05\xa0s" in waited
    assert page.locator("#charts canvas").evaluate_all(PAINTED) == [True, True]
    box = page.locator("#charts canvas").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 30, box["y"] + box["height"] / 2)
    page.wait_for_selector("#charts .u-legend >> nth=0 >> text=1.5")
    links = page.locator("#charts a[download]").evaluate_all("all => all.map(each => each.href)")
    assert [each.partition("api/usage/")[2] for each in links] == [
        "timeline.csv?hours=24", "devices.csv?hours=24",
    ]  # fmt: skip
    rows = [row.split() for row in page.locator(".gl-heat tbody tr").all_inner_texts()]
    assert rows[0] == ["GPU", "0", *["free"] * 12, *["90"] * 12]
    assert (rows[1][2], rows[1][-1]) == ("0", "100")
    page.reload()
    page.wait_for_selector("#part-usage:visible")


#: Whether a canvas has a pixel that is not clear.
PAINTED = """all => all.map(one => one.getContext("2d")
  .getImageData(0, 0, one.width, one.height).data.some(value => value > 0))"""


def test_a_service_that_is_away_does_not_empty_the_calendar(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    stage.reservations = [reserved(noon)]
    page.goto(stage.url + "group")
    page.wait_for_selector(".ec-event:has-text('night')")
    problem = {"reason": "store_unavailable", "title": "Not now.", "numbers": {}}
    stage.answers["GET reservations"] = (503, problem)
    page.click("button.ec-timeGridDay")
    page.wait_for_selector("#gl-alerts >> text=Not now.")
    page.wait_for_selector(".ec-event:has-text('night')")


def test_what_an_instructor_did_is_said_where_it_is_seen(stage: Stage, page: Any) -> None:
    stage.reader = PageReader("ida", leads=("cs101",))
    people(stage)
    stage.answers["POST messages"] = (201, {"id": "m1"})
    page.goto(stage.url + "group")
    page.fill("#message-text", "The room is B12.")
    page.click("#message-form >> text=Send")
    page.wait_for_selector("#gl-alerts >> text=Sent.")
    page.click("[aria-label='End the lease of grace']")
    page.fill("#end-note", "The room closes.")
    page.click("#end-submit")
    page.wait_for_selector("#gl-alerts >> text=The lease of grace is being ended.")
