"""The instructor's day: reserve by dragging, see who has come, tell everybody, end a lease."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.browser.demo import RunningDemo
from tests.browser.test_round import log_in

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
LONG = 120_000  # ms: a server starts, on a busy machine


@pytest.fixture(scope="module")
def demo(shared_demo: RunningDemo) -> RunningDemo:
    """The demo as a course would have it; nothing is reclaimed however slow a test is."""
    shared_demo.prepare(idle=600)
    return shared_demo


@pytest.fixture
def teacher(demo: RunningDemo, profile: Any) -> Any:
    """The instructor's page, of the one group that the demo has."""
    page = profile.new_page()
    log_in(demo, page, "instructor")
    page.goto(demo.service + "group")
    page.wait_for_selector("h1:has-text('cs101')")
    page.wait_for_selector(".ec-time-grid")
    return page


def drag_over(page: Any, day: int, minutes: int) -> None:
    """Drag over free time in the middle of what the calendar shows of a day."""
    page.locator("#calendar").scroll_into_view_if_needed()
    column = page.locator(".ec-body .ec-day").nth(day).bounding_box()
    seen = page.locator("#calendar").bounding_box()
    slot = column["height"] / 48  # of half an hour
    x, y = column["x"] + column["width"] / 2, seen["y"] + seen["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + slot * (minutes / 30 - 1), steps=8)
    page.mouse.up()


def times(page: Any) -> tuple[datetime, datetime]:
    """Return what the form says."""
    start, end = (page.input_value(f"#book-{name}") for name in ("start", "end"))
    return datetime.fromisoformat(start), datetime.fromisoformat(end)


def test_an_instructor_reserves_by_dragging_and_takes_the_nearest_window(
    demo: RunningDemo, teacher: Any, assert_accessible: Callable[..., None]
) -> None:
    teacher.click(".ec-next")  # next week is all to come
    drag_over(teacher, day=2, minutes=120)
    teacher.wait_for_selector("#book-dialog:visible")
    start, end = times(teacher)
    assert (start.weekday(), end - start) == (2, timedelta(hours=2))
    teacher.fill("#book-name", "lab")
    teacher.fill("#book-seats", "2")
    teacher.select_option("#book-every", "weekly")
    teacher.fill("#book-times", "3")
    teacher.wait_for_selector("#book-found:has-text('It fits. 3 sessions')")
    assert_accessible(teacher)
    teacher.click("#book-submit")
    teacher.wait_for_selector(".ec-event .gl-window-seats:has-text('simulated-gpu')")
    assert teacher.inner_text(".gl-window-seats").startswith("2 ")
    # The same time again: what is in the way, and the nearest time, before anything is sent.
    drag_over(teacher, day=2, minutes=30)
    teacher.wait_for_selector(".gl-dialog:visible")
    if teacher.is_visible("#session-dialog"):  # the middle is taken: that was a click on the lab
        teacher.click("#session-close")
        teacher.click("[data-action=reserve]")
    teacher.fill("#book-name", "second")
    teacher.fill("#book-seats", "2")
    teacher.fill("#book-start", f"{start:%Y-%m-%dT%H:%M}")
    teacher.fill("#book-end", f"{end:%Y-%m-%dT%H:%M}")
    teacher.wait_for_selector("#book-found:has-text('It does not fit.')")
    assert "2 for cs101" in teacher.inner_text("#book-found")
    teacher.click("[data-offer=nearest]")
    teacher.wait_for_selector("#book-found:has-text('It fits.')")
    assert times(teacher) == (end, end + (end - start))
    teacher.click("#book-submit")
    teacher.wait_for_selector(".ec-event:has-text('second')")
    # A copy of the series, on another day, of which one is closed by now.
    shut = (start + timedelta(days=1, weeks=2)).date()
    holiday = {"from": f"{shut}", "to": f"{shut}", "title": "Founders' day"}
    demo.put_policy(reservations={"closures": {"founders": holiday}})
    teacher.click(".ec-event:has-text('lab')")
    teacher.click("[data-action=copy]")
    assert teacher.input_value("#book-name") == "lab-copy"
    assert teacher.input_value("#book-times") == "3"
    later = start + timedelta(days=1)
    teacher.fill("#book-start", f"{later:%Y-%m-%dT%H:%M}")
    teacher.wait_for_selector("#book-found:has-text('It fits. 2 sessions')")
    assert f"Not on {shut} {start:%H:%M}: Founders' day" in teacher.inner_text("#book-found")
    teacher.click("#book-submit")
    teacher.wait_for_selector(".ec-event:has-text('lab-copy')")
    teacher.click(".ec-next")
    teacher.click(".ec-next")
    teacher.wait_for_selector(".gl-closed:has-text('Closed: Founders')")
    assert_accessible(teacher)
    teacher.click(".ec-today")
    teacher.click("button:has-text('Term')")
    teacher.wait_for_selector(".ec-list .ec-event:has-text('lab-copy')")
    assert teacher.locator(".ec-list .ec-event").count() == 6
    assert_accessible(teacher)


def drag(page: Any, name: str, days: int, minutes: int) -> None:
    """Drag a window of the calendar to another day or time."""
    page.locator("#calendar").scroll_into_view_if_needed()
    event = page.locator(f".ec-event:has-text('{name}')").bounding_box()
    column = page.locator(".ec-body .ec-day").first.bounding_box()
    x, y = event["x"] + event["width"] / 2, event["y"] + event["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    there = (x + days * column["width"], y + column["height"] / 48 * minutes / 30)
    page.mouse.move(*there, steps=12)
    page.mouse.up()


def test_a_window_is_moved_by_dragging_and_goes_back_where_there_is_no_room(teacher: Any) -> None:
    for _ in range(4):
        teacher.click(".ec-next")

    def reserve(name: str, day: int) -> tuple[datetime, datetime]:
        drag_over(teacher, day, minutes=60)
        teacher.fill("#book-name", name)
        teacher.fill("#book-seats", "3")
        teacher.wait_for_selector("#book-found:has-text('It fits.')")
        found = times(teacher)
        teacher.click("#book-submit")
        teacher.wait_for_selector(f".ec-event:has-text('{name}')")
        return found

    start, end = reserve("first", 1)
    reserve("full", 3)
    drag(teacher, "first", days=1, minutes=60)
    later = [each + timedelta(days=1, hours=1) for each in (start, end)]
    shown = ".*".join(f"{each:%-I:%M}" for each in later)  # an American browser's clock
    moved = f".ec-event:has-text('first') >> text=/^{shown}.PM$/"
    teacher.wait_for_selector(moved)
    teacher.wait_for_selector("#gl-live >> text=first is moved.", state="attached")
    drag(teacher, "first", days=1, minutes=-60)
    teacher.wait_for_selector("#gl-alerts:has-text('will not fit'):has-text('The nearest time')")
    teacher.wait_for_selector(moved)


def test_an_instructor_reserves_what_a_calendar_file_holds(
    teacher: Any, assert_accessible: Callable[..., None]
) -> None:
    week = datetime.fromisoformat(teacher.evaluate("new Date().toISOString()").rstrip("Z"))
    start = (week + timedelta(weeks=9)).replace(hour=9, minute=0)
    event = "BEGIN:VEVENT\r\nUID:one\r\nSUMMARY:Exercises\r\nDTSTART:{0:%Y%m%dT%H%M%S}Z\r\n"
    event += "DTEND:{1:%Y%m%dT%H%M%S}Z\r\nRRULE:FREQ=WEEKLY;COUNT=3\r\nEND:VEVENT\r\n"
    calendar = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//here\r\n{}END:VCALENDAR\r\n"
    once = event.format(start, start + timedelta(hours=2))
    missing = f"EXDATE:{start + timedelta(days=2):%Y%m%dT%H%M%S}Z\r\nEND:VEVENT"
    holiday = "BEGIN:VEVENT\r\nUID:two\r\nSUMMARY:Holiday\r\nDTSTART;VALUE=DATE:{:%Y%m%d}\r\n"
    holiday = holiday.format(start) + "END:VEVENT\r\n"
    whole = calendar.format(once.replace("END:VEVENT", missing) + holiday)

    def choose(text: str) -> None:
        file = {"name": "term.ics", "mimeType": "text/calendar", "buffer": text.encode()}
        teacher.set_input_files("#upload-file", file)

    teacher.click("[data-action=upload]")
    teacher.fill("#upload-seats", "99")
    choose(whole)
    teacher.wait_for_selector("#upload-found[data-fits=false]")
    assert teacher.is_disabled("#upload-submit")
    teacher.fill("#upload-seats", "2")
    choose("no calendar")
    teacher.wait_for_selector("#upload-found[data-fits=false]:has-text('calendar')")
    # What could not be asked for a moment is asked again by itself.
    teacher.route("**/reservations.ics", lambda route: route.fulfill(status=503), times=1)
    choose(whole)
    teacher.wait_for_selector("#upload-found[data-fits=false]:has-text('does not answer')")
    teacher.wait_for_selector("#upload-found[data-fits=true]:has-text('Exercises: 3 sessions.')")
    teacher.wait_for_selector("#upload-found:has-text('Nothing is planned at')")
    teacher.wait_for_selector("#upload-found:has-text('Left out: Holiday (')")
    assert_accessible(teacher)
    teacher.click("#upload-submit")
    teacher.wait_for_selector("#upload-dialog", state="hidden")
    teacher.evaluate("document.querySelector('.ec-today').scrollIntoView()")
    for _ in range(9):
        teacher.click(".ec-next")
    teacher.wait_for_selector(".ec-event:has-text('Exercises')")


def test_a_lab_that_is_open_shows_who_came_is_told_and_extended(
    demo: RunningDemo, teacher: Any, chromium: Any, assert_accessible: Callable[..., None]
) -> None:
    now = datetime.fromisoformat(teacher.evaluate("new Date().toISOString()").rstrip("Z"))
    teacher.click("[data-action=reserve]")
    teacher.fill("#book-name", "today")
    teacher.click("#book-dialog summary")
    teacher.fill("#book-zone", "America/New_York")
    teacher.wait_for_selector("#book-found:has-text('Times are those of America/New_York.')")
    teacher.fill("#book-zone", "UTC")
    teacher.fill("#book-start", f"{now - timedelta(minutes=2):%Y-%m-%dT%H:%M}")
    teacher.fill("#book-end", f"{now + timedelta(minutes=40):%Y-%m-%dT%H:%M}")
    teacher.wait_for_selector("#book-found:has-text('It fits.')")
    teacher.click("#book-submit")
    teacher.wait_for_selector(".gl-window-open")
    context = chromium.new_context()
    student = context.new_page()
    log_in(demo, student, "student")
    student.goto(demo.service)
    student.click("[data-action=ask]")
    teacher.wait_for_selector(
        "tr[data-kind=has][data-state=active]:has-text('student')", timeout=LONG
    )
    assert teacher.inner_text("[data-kind=has][data-action=filter] .gl-count") == "1"
    teacher.click("[data-kind=has][data-action=filter]")
    teacher.wait_for_selector(".gl-roster tr:has-text('student2')", state="detached")
    assert len(teacher.locator(".gl-roster tbody tr").all_inner_texts()) == 1
    teacher.click("[data-kind=all][data-action=filter]")
    # Everybody is told, without a reload.
    student.goto(demo.service)
    student.wait_for_selector(".gl-lease")
    teacher.fill("#message-text", "Please finish by four.")
    teacher.click("#message-form button")
    student.wait_for_selector(".gl-message:has-text('Please finish by four.')")
    assert_accessible(teacher)
    teacher.click("[data-action=withdraw]")
    student.wait_for_selector(".gl-message", state="detached")
    # The lab goes on for longer, and says who is there.
    teacher.click(".gl-window-open")
    teacher.wait_for_selector("#session-dialog:visible .gl-attendance .gl-came")
    teacher.wait_for_selector("#session-dialog .gl-fact:has-text('Taken') >> text=1 of 2")
    came = teacher.locator("#session-dialog tbody tr").all_inner_texts()
    assert "student" in [row.split()[0] for row in came]
    before = teacher.inner_text(".gl-window-open .gl-window-time")
    teacher.click("[data-action=extend][data-minutes='15']")
    teacher.wait_for_selector("#session-dialog", state="hidden")
    teacher.wait_for_function(
        "before => ![null, undefined, before].includes("
        "document.querySelector('.gl-window-open .gl-window-time')?.innerText)",
        arg=before,
    )
    # One lease is ended, with a reason that its holder reads.
    teacher.click("[aria-label='End the lease of student']")
    teacher.fill("#end-note", "Others wait.")
    teacher.click("#end-submit")
    student.wait_for_selector(".gl-lease[data-state=ended]:has-text('Others wait.')", timeout=LONG)
    hers = "tr[data-kind=had]:has-text('student'):not(:has-text('student2'))"
    teacher.wait_for_selector(f"{hers}:has-text('had a GPU until')")
    context.close()
    # It is over before its time; a first click asks.
    teacher.click(".gl-window-open")
    teacher.click("[data-action=end-now]")
    teacher.wait_for_selector("#session-ask >> text=End today now?")
    teacher.click("#session-confirm >> text=End now")
    teacher.wait_for_selector("#session-dialog", state="hidden")
    teacher.wait_for_selector(".gl-window-over:has-text('today')")


def test_an_admin_sees_what_time_outs_would_do_and_saves_them(
    demo: RunningDemo, profile: Any, assert_accessible: Callable[..., None]
) -> None:
    page = profile.new_page()
    log_in(demo, page, "admin")
    page.goto(demo.service + "policy")
    page.wait_for_selector("#out-idle")
    assert (page.input_value("#out-idle"), page.input_value("#out-idle-unit")) == ("10", "m")
    page.fill("#out-idle", "20")
    page.wait_for_selector("#outs-found >> text=Idle: 10 min → 20 min")
    assert "would be warned now" in page.inner_text("#outs-warned")
    page.fill("#out-idle", "20000")
    page.wait_for_selector("#outs-found >> text=at most 7 days")
    assert page.is_disabled("#outs-save")
    page.fill("#out-idle", "20")
    page.wait_for_selector("#outs-save:enabled")
    assert_accessible(page)
    page.click("#outs-save")
    page.wait_for_selector("#save-dialog:visible >> text=Idle: 10 min → 20 min")
    page.click("#save-submit")
    page.wait_for_selector("#outs-save:disabled")
    page.reload()
    page.wait_for_selector("#out-idle")
    assert page.input_value("#out-idle") == "20"
    page.goto(demo.service + "health")
    page.wait_for_selector("#health dl")
    assert_accessible(page)
    page.goto(demo.service + "admin#usage")
    page.wait_for_selector("#usage table, #usage [data-key=empty]")
    page.wait_for_selector("#charts canvas >> nth=1")
    assert_accessible(page)
