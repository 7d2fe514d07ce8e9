"""The student's page and the card in a real browser, in every state a lease can be in."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from gpulease.protocol.service import LeaseView
from tests.browser.student import state_shown, text_of
from tests.pages.stage import Stage, gpu_class, lease, soon

pytestmark = pytest.mark.browser


def test_what_cannot_leave_is_named_and_the_busy_share_shown(stage: Stage, page: Any) -> None:
    found: Any = [
        {"name": f"v{n}", "reason": "not_home", "sentence": f"why {n}", "size": None}
        for n in range(5)
    ]
    said = (
        "The GPU was idle. Cannot be copied back: `v0` (why 0), `v1` (why 1), `v2` (why 2), 2 more."
    )
    stage.put(lease(sentence=said, blockers=found, busy_share=0.35))
    page.goto(stage.url)
    state_shown(page, "active")
    assert "Cannot be copied back: `v0` (why 0)" in text_of(page, "#leases")
    assert "· in use 35% of its time" in text_of(page, "#leases")
    page.click("summary")
    assert page.locator(".gl-blockers li").all_inner_texts()[4] == "v4: why 4"
    end: Any = {"reason": "idle", "sentence": "Lost.", "note": "", "at": soon(-5), "lost": found}
    stage.put(lease("ended", end=end))
    page.wait_for_selector("text=5 variables are lost")


@pytest.mark.parametrize(
    ("where", "count", "words"),
    [("", 1, "Move to A100 80 GB"), ("card", 2, "/Move to 2 . A100 80 GB/")],
)
def test_what_was_asked_for_is_a_click_away_once_it_is_free(
    stage: Stage, page: Any, where: str, count: int, words: str
) -> None:
    place = "#card" if where else "#leases"
    stage.put(lease("active", asked_class="a100", upgrade=None))
    page.goto(stage.url + where)
    state_shown(page, "active", place)
    assert page.locator("[data-action=upgrade]").count() == 0
    upgrade: Any = {"gpu_class": "a100", "title": "A100 80 GB", "count": count}
    stage.put(lease("active", sentence="What you asked for is free.", upgrade=upgrade))
    page.click(f"{place} >> text={words}")
    page.wait_for_selector(f"{place} [data-action=upgrade]", state="detached")
    assert len(stage.called("POST", "leases/lease-1/upgrade")) == 1


def test_every_state_is_shown_as_it_comes(stage: Stage, page: Any) -> None:
    place = "#leases"
    stage.put(lease("queued", position=3, sentence="All are held.", next_step="Wait or leave."))
    page.goto(stage.url)
    state_shown(page, "queued", place)
    seen = text_of(page, place)
    assert "Place in the queue 3" in seen
    assert "Expected unknown" in seen
    between = [soon(100), soon(400)]
    stage.put(lease("queued", position=1, expected_start=soon(180), expected_between=between))
    page.wait_for_selector("text=1 (next)")
    assert "in about 3 min" in text_of(page, place)
    assert re.search(r"8 of 10 start between .*\d:\d\d.*\d:\d\d", text_of(page, place))
    stage.put(lease("starting"))
    state_shown(page, "starting", place)
    assert "Starting a process on the GPU" in text_of(page, '[aria-current="step"]')
    stage.put(lease("starting", reason="connecting"))
    page.wait_for_selector('[aria-current="step"]:has-text("Connecting your notebook")')
    stage.put(lease("active", ends_at=soon(50), ends_by="idle_warning"))
    state_shown(page, "active", place)
    seen = text_of(page, place)
    for words in ("Simulated GPU 0", "40%", "In use"):
        assert words in seen
    assert re.search(r"Idle warning in 0:(50|4\d)", seen)
    assert page.is_disabled('[data-action="keep"]')
    stage.put(lease("warned", sentence="It was idle for 60 s."))
    state_shown(page, "warned", place)
    assert "It was idle for 60 s." in text_of(page, place)
    assert re.fullmatch(r"0:(20|1\d)", text_of(page, ".gl-clock"))
    assert "Keep for 15 min 2 times left" in text_of(page, place)
    stage.put(lease("draining"))
    state_shown(page, "draining", place)
    assert page.is_visible('[role="timer"]')
    stage.put(lease("ended"))
    state_shown(page, "ended", place)
    seen = text_of(page, place)
    assert "It was idle." in seen
    assert "The variables that GPU cells changed are in your notebook" in seen
    again = page.locator('[data-action="ask"], [data-action="again"]')
    assert again.count() == 1  # the form for asking, or a button where there is none
    again.click()
    state_shown(page, "queued", place)


def test_the_card_says_in_one_line_what_comes_next(stage: Stage, page: Any) -> None:
    stage.put(lease("queued", position=3))
    page.goto(stage.url + "card")
    steps: list[tuple[LeaseView, str, list[str]]] = [
        (lease("queued", position=3), r"Place 3 in the queue · no estimate yet", ["end"]),
        (lease("queued", position=1, expected_start=soon(180)), r"Next in line · .*3 min", ["end"]),
        (lease("starting", sentence="It starts."), r"It starts\.", ["end"]),
        (lease("active", ends_at=soon(50), ends_by="idle_warning"),
         r"Idle warning in 0:(50|4\d).*", ["keep", "end"]),
        (lease("warned"), r"0:(20|1\d) until this GPU is released", ["keep", "end"]),
        (lease("draining"), r"0:(30|2\d) at most, until it is done", []),
        (lease("ended"), r"It was idle\.", ["again"]),
    ]  # fmt: skip
    for view, line, actions in steps:
        stage.put(view)
        state_shown(page, view["state"], "#card")
        page.wait_for_function(
            "line => new RegExp(`^${line}$`).test("
            "document.querySelector('.gl-card-status').innerText.replace(/\\s+/g, ' ').trim())",
            arg=line,
        )
        shown = page.locator("#card [data-action]").evaluate_all(
            "all => all.map(each => each.dataset.action)"
        )
        assert shown == actions


def test_keep_and_return_are_asked_of_the_service(stage: Stage, page: Any) -> None:
    stage.put(lease("warned"))
    page.goto(stage.url)
    page.click('[data-action="keep"]')
    state_shown(page, "active")
    page.click("text=Release GPU")
    state_shown(page, "draining")
    verbs = [
        (verb, path)
        for verb, path, _ in stage.calls
        if path.startswith("leases/") and verb != "GET"
    ]
    assert verbs == [("POST", "leases/lease-1/keep"), ("DELETE", "leases/lease-1")]


def test_a_warning_is_seen_in_the_title_of_the_tab(stage: Stage, page: Any) -> None:
    stage.put(lease("warned"))
    page.goto(stage.url)
    page.wait_for_function("() => /^0:(20|1[0-9]) left: GPU$/.test(document.title)")
    stage.put(lease("active"))
    page.wait_for_function("() => document.title === 'My GPU - GPU leases'")


def test_the_way_to_the_server_is_a_link_and_never_a_script(stage: Stage, page: Any) -> None:
    stage.put(lease("active"))
    page.goto(stage.url)
    link = page.locator("text=Open my server")
    assert link.get_attribute("href") == "/user/ada/"
    stage.servers[0]["url"] = "javascript:alert(1)"
    page.reload()
    state_shown(page, "active")
    page.wait_for_function("() => performance.getEntriesByName(location.href + 'api/servers')[0]")
    assert link.count() == 0


def test_the_countdown_is_by_the_service_clock(stage: Stage, page: Any) -> None:
    page.add_init_script("const real = Date.now; Date.now = () => real() + 3600e3")
    stage.put(lease("warned"))
    page.goto(stage.url)
    state_shown(page, "warned")
    assert re.fullmatch(r"0:(20|1\d)", text_of(page, ".gl-clock"))


def test_notes_and_names_stay_text(stage: Stage, page: Any) -> None:
    evil = '<img src=x onerror="document.title=1"><b>bold</b>'
    end = {"reason": "forced", "sentence": evil, "note": evil, "at": soon(-5)}
    stage.classes = [gpu_class(title=evil)]
    stage.put(lease("ended", end=end, server=evil, next_step=evil))
    stage.ended = [stage.leases["lease-1"]]
    page.goto(stage.url)
    state_shown(page, "ended")
    page.wait_for_selector("#history-list li", state="attached")
    assert page.inner_text(".gl-note").endswith(evil)
    assert page.locator("#main b, #main img").count() == 0
    assert page.title() == "My GPU - GPU leases"


def test_the_admins_note_is_said_once_and_instants_are_local(stage: Stage, chromium: Any) -> None:
    end = {"reason": "forced", "sentence": "An admin ended it. They wrote: No.", "note": "No."}
    stage.put(lease("ended", id="old", server="other", end=end | {"at": soon(-5)}))
    context = chromium.new_context(timezone_id="Asia/Kolkata", locale="en-GB")
    page = context.new_page()
    page.goto(stage.url)
    state_shown(page, "ended")
    assert text_of(page, ".gl-sentence") == "An admin ended it."
    assert text_of(page, ".gl-note") == "Message: No."
    stage.put(lease("warned", sentence="Idle. It is released at 2030-01-02T11:58:36Z."))
    state_shown(page, "warned")
    assert text_of(page, ".gl-sentence") == "Idle. It is released at 2 Jan 17:28."
    context.close()


def test_another_persons_lease_is_not_mine(stage: Stage, page: Any) -> None:
    stage.put(lease("active", user="grace"))
    page.goto(stage.url)
    page.wait_for_selector("text=You have no GPU")
    assert page.locator("[data-state]").count() == 0


def test_earlier_leases_are_paged(stage: Stage, page: Any) -> None:
    stage.ended = [lease("ended", id=f"old-{n}") for n in range(23)]
    page.goto(stage.url)
    page.click("#history > summary")
    page.wait_for_selector("text=1 to 10 of 23")
    page.click("text=Older")
    page.wait_for_selector("text=11 to 20 of 23")
    page.click("text=Older")
    page.wait_for_selector("text=21 to 23 of 23")
    assert page.is_disabled("text=Older")
    assert page.locator("#history-list li").count() == 3


def test_who_holds_is_told_that_others_wait(stage: Stage, page: Any) -> None:
    stage.put(lease())
    page.goto(stage.url)
    page.wait_for_selector(".gl-lease")
    assert page.locator(".gl-others").count() == 0
    stage.put_classes([gpu_class(free=0, queued=2)])
    page.wait_for_selector(".gl-others:has-text('2 people wait for a GPU like yours')")
    stage.put_classes([gpu_class(free=0, queued=1)])
    page.wait_for_selector(".gl-others:has-text('1 person waits for a GPU like yours')")


def test_what_is_reserved_next_and_left_this_week_is_said(stage: Stage, page: Any) -> None:
    window = {
        "start": soon(7200), "end": soon(14400), "end_for_you": soon(14400), "state": "coming",
        "seats": 20, "claimed": 0, "at": "", "reserved": 20,
    }  # fmt: skip
    # Others with extra time sit there still.
    over = window | {"state": "open", "start": soon(-7200), "end_for_you": soon(-1)}
    lab = {
        "name": "lab",
        "title": "Lab 3",
        "group": "cs101",
        "gpu_class": "sim",
        "image": "cs101/torch",
        "mine": True,
    }
    theirs = lab | {"title": "Not mine", "mine": False}
    stage.reservations = [theirs | {"windows": [window]}, lab | {"windows": [over, window]}]
    budget = {"left": 3.25, "of": 10.0, "until": soon(86400), "whose": "person", "at_zero": "end"}
    stage.projects = [
        {"name": "thesis", "title": "Thesis", "mine": True, "budget": budget},
        {"name": "other", "title": "Other", "mine": False, "budget": budget},
    ]
    page.goto(stage.url)
    page.wait_for_selector("#mine >> text=Next reserved: Lab 3")
    page.wait_for_selector("#mine >> text=20 seats · Simulated GPU · image cs101/torch")
    said = page.inner_text("#mine")
    assert "in about 2 h" in said
    assert "Thesis: 3.3 of 10 GPU-hours left" in said
    assert "Other" not in said


def test_a_seat_is_the_readers_until_their_own_end_and_is_read_again_as_gpus_are_taken(
    stage: Stage, page: Any
) -> None:
    window = {
        "start": soon(-60), "end": soon(-1), "end_for_you": soon(600), "state": "open", "seats": 2,
        "claimed": 1, "at": "", "reserved": 2,
    }  # fmt: skip
    lab: Any = {"name": "lab", "title": "", "group": "cs101", "gpu_class": "sim", "image": ""}
    stage.reservations = [lab | {"mine": True, "windows": [window]}]
    budget = {"left": 0.25, "of": 10.0, "until": soon(86400), "whose": "person", "at_zero": "end"}
    stage.projects = [{"name": "thesis", "title": "Thesis", "mine": True, "budget": budget}]
    page.goto(stage.url)
    page.wait_for_selector("#mine >> text=Reserved for you now: lab")
    assert "1 of 2 seats left" in page.inner_text("#mine")
    assert "0.25 of 10 GPU-hours left" in page.inner_text("#mine")
    window["claimed"] = 2
    stage.put_classes([gpu_class(free=0)])
    page.wait_for_selector("#mine >> text=0 of 2 seats left")


def run(name: str, **changed: Any) -> dict[str, Any]:
    base = {
        "id": name, "notebook": f"work/{name}.ipynb", "opens": "", "index": None, "state": name,
        "outcome": None, "sentence": f"It is {name}.", "gpu": "", "cells": 0, "done": 0,
        "created": soon(-60), "started": None, "ended": None,
    }  # fmt: skip
    return base | changed


def test_runs_are_followed_cancelled_and_their_output_opened(
    stage: Stage, page: Any, assert_accessible: Callable[..., None]
) -> None:
    done = {"state": "ended", "outcome": "succeeded", "ended": soon(-5), "cells": 9, "done": 9}
    stage.runs = [
        run("running", cells=9, done=4, gpu="You hold a GPU."),
        run("good", opens="a b/good.run-1.ipynb", **done),
        run("wrong", index=7, **done | {"outcome": "failed", "done": 3}),
    ]
    gone: Any = {"reason": "server_gone", "sentence": "It stopped.", "note": "", "at": soon(-5)}
    stage.put(lease("ended", server="run-0123456789ab", run="0123456789ab", end=gone))
    stage.ended = [stage.leases["lease-1"]]
    event = {"at": soon(-50), "who": "ada", "what": "server_gone", "note": "why"}
    stage.run_events = [event | {"sentence": "Fault: its notebook server ended."}]
    page.goto(stage.url)
    first = page.locator(".gl-run").nth(0)
    first.locator("text=It is running. You hold a GPU.").wait_for()
    assert first.locator("progress").evaluate("bar => [bar.value, bar.max]") == [4, 9]
    assert page.locator(".gl-run-state").all_inner_texts() == ["Running", "Finished", "Failed"]
    assert page.locator(".gl-run progress").evaluate_all("all => all.map(bar => bar.value)") == [
        4, 9, 3,
    ]  # fmt: skip
    assert "3 of 9 cells ran. It is wrong." in text_of(page, ".gl-run >> nth=2")
    # What its server had is no GPU of the person's that went: the run itself says how it went.
    assert "You have no GPU." in text_of(page, "#leases")
    page.click("#history > summary")
    page.wait_for_selector("#history-list >> text=Simulated GPU for a background run")
    assert "the run ended" in text_of(page, "#history-list")
    link = page.locator("text=Open the output")
    assert link.count() == 1
    assert link.get_attribute("href").endswith("user-redirect/lab/tree/a%20b/good.run-1.ipynb")
    page.click("[aria-label='Log of wrong.ipynb [7]']")
    page.wait_for_selector(".gl-run-log >> text=Fault: its notebook server ended. why")
    assert_accessible(page)
    page.click("[aria-label='Cancel running.ipynb']")
    page.wait_for_selector(".gl-run-state[data-state=cancelled]")
    assert page.locator("[data-action=run-cancel]").count() == 0


def test_who_has_no_runs_sees_nothing_of_them(stage: Stage, page: Any) -> None:
    page.goto(stage.url)
    page.wait_for_selector("#ask", state="visible")
    assert page.is_hidden("#runs")


@pytest.mark.parametrize("where", ["", "card"])
def test_a_part_of_a_card_is_told_as_a_part(stage: Stage, page: Any, where: str) -> None:
    place = "#card" if where else "#leases"
    part: Any = gpu_class(title="A100 part", percent=70, steps=[40], memory=56 << 30)
    stage.classes = [part]
    page.goto(stage.url + where)
    if not where:
        page.wait_for_selector("text=70% of a card")
        page.select_option("#ask-step", "40")
    upgrade: Any = {"gpu_class": "sim", "title": "A100 part", "count": 1, "percent": 70}
    held: Any = [{"uuid": "A", "name": "NVIDIA A100", "memory": 80 << 30, "simulated": True}]
    more: Any = {"percent": 40, "upgrade": upgrade, "devices": held, "memory_used": 1 << 30}
    stage.put(lease("active", **more))
    state_shown(page, "active", place)
    page.wait_for_selector(f"{place} >> text=Move to A100 part, 70% of a card")
    assert where or "A100 part, 40% of a card" in text_of(page, place)
