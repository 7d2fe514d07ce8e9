"""Asking for a GPU on the student's page and on the card of the hub's page."""

import re
from typing import Any

import pytest

from tests.browser.conftest import DEADLINE
from tests.browser.student import state_shown, text_of
from tests.helpers import wait_for
from tests.pages.stage import XSRF, Stage, gpu_class, lease, soon

pytestmark = pytest.mark.browser


def test_asking_says_what_is_free_and_sends_one_ask(stage: Stage, page: Any) -> None:
    stage.classes = [gpu_class(name="a", free=0, queued=3), gpu_class(name="b", free=1)]
    page.goto(stage.url)
    page.wait_for_selector("#ask-form")
    assert "0 of 2 available, 3 waiting" in text_of(page, "#ask")
    assert page.is_checked("#class-b")  # the one that has something free
    assert page.is_visible("#simulated")
    page.click("label[for=class-a]")
    page.wait_for_selector("text=You get place 4 in the queue")
    page.click("text=Request GPU")
    state_shown(page, "queued")
    (asked,) = stage.called("POST", "leases")
    assert asked == {"origin": "page", "gpu_class": "a", "server": ""}


def test_where_a_machine_is_added_that_is_told_before_asking(stage: Stage, page: Any) -> None:
    stage.classes = [
        gpu_class(name="a", total=0, free=0, provision=360.0, spot=True),
        gpu_class(name="b", total=2, free=0, provision=90.0, spot=False),
        gpu_class(name="c", total=2, free=0, provision=None, spot=False),
    ]
    page.goto(stage.url)
    page.wait_for_selector("#ask-form")
    spot = "none here at present · a machine is added for you, which usually takes 6 min; it may"
    assert spot in text_of(page, "#class-a-about")
    usually = "0 of 2 available · a machine is added for you, which usually takes 1 min 30 s"
    assert text_of(page, "#class-b-about").endswith(usually)
    assert "machine" not in text_of(page, "#class-c-about")


def test_how_many_is_asked_where_a_class_gives_more_than_one(stage: Stage, page: Any) -> None:
    stage.classes = [gpu_class(name="a", max_count=4), gpu_class(name="b", max_count=1)]
    page.goto(stage.url)
    page.wait_for_selector("#ask-count")
    page.click("label[for=class-b]")
    page.wait_for_selector("#ask-count", state="detached")
    page.click("label[for=class-a]")
    page.fill("#ask-count", "5")
    page.click("text=Request GPU")
    assert stage.called("POST", "leases") == []  # the browser says that 4 is the most
    page.fill("#ask-count", "3")
    page.click("text=Request GPU")
    state_shown(page, "queued")
    assert stage.called("POST", "leases")[0]["count"] == 3


def test_the_card_asks_how_many_too(stage: Stage, page: Any) -> None:
    stage.classes = [gpu_class(name="a", max_count=4), gpu_class(name="b", max_count=1)]
    page.goto(f"{stage.url}card")
    page.wait_for_selector("#ask-count")
    page.fill("#ask-count", "5")
    page.click("text=Request GPU")
    assert stage.called("POST", "leases") == []  # the browser says that 4 is the most
    page.fill("#ask-count", "2")
    page.select_option("#card-class", "b")
    page.wait_for_selector("#ask-count", state="detached")
    page.select_option("#card-class", "a")
    assert page.input_value("#ask-count") == "2"
    page.click("text=Request GPU")
    page.wait_for_selector('#card [data-state="queued"]')
    assert stage.called("POST", "leases")[0] == {
        "origin": "page",
        "gpu_class": "a",
        "count": 2,
        "server": "",
    }


def test_several_servers_are_offered(stage: Stage, page: Any) -> None:
    stage.servers += [{"name": "gpu-lab", "display_name": "GPU lab", "ready": True, "url": "/"}]
    page.goto(stage.url)
    page.select_option("#ask-server", label="GPU lab")
    page.click("text=Request GPU")
    state_shown(page, "queued")
    assert stage.called("POST", "leases")[0]["server"] == "gpu-lab"


def test_without_a_server_the_ask_comes_with_its_start(stage: Stage, page: Any) -> None:
    stage.servers = []
    page.goto(stage.url)
    page.click("text=Start my server and get a GPU")
    page.wait_for_url("**/hub/spawn/ada")
    assert len(stage.called("POST", "leases")) == 1


def test_who_comes_back_to_the_form_is_offered_what_runs_now(stage: Stage, page: Any) -> None:
    page.clock.install()
    page.goto(stage.url)
    page.wait_for_selector("#ask-form")
    stage.servers.append({**stage.servers[0], "name": "second", "display_name": ""})
    page.mouse.move(0, 0)
    page.hover("#ask-heading")  # too soon after the page has looked
    page.mouse.move(0, 0)
    page.clock.fast_forward(21_000)
    assert page.locator("#ask-server").count() == 0
    page.hover("#ask-heading")
    page.wait_for_selector("#ask-server")


def test_a_server_that_stopped_is_offered_to_be_started(stage: Stage, page: Any) -> None:
    stage.put(lease("active"))
    page.goto(stage.url)
    page.wait_for_selector("text=Open my server")
    stage.servers = []
    end = {"reason": "server_gone", "sentence": "It stopped.", "note": "", "at": soon(-1)}
    stage.put(lease("ended", end=end))
    page.wait_for_selector("#ask >> text=Start my server and get a GPU")


def test_a_refusal_says_what_and_what_next(stage: Stage, page: Any) -> None:
    stage.answers["POST leases"] = (
        409,
        {"title": "You hold 2 leases already.", "next_step": "Return one.", "reason": "user_limit"},
    )
    page.goto(stage.url)
    page.click("text=Request GPU")
    page.wait_for_selector('#gl-alerts [data-reason="user_limit"]')
    assert text_of(page, "#gl-alerts") == "You hold 2 leases already. Return one."
    assert page.is_enabled("text=Request GPU")
    page.click("#gl-alerts .btn-close")
    assert text_of(page, "#gl-alerts") == ""


def test_the_card_in_the_hubs_page_asks_and_is_as_high_as_it_is(stage: Stage, page: Any) -> None:
    page.goto(stage.url.replace("/services/gpulease/", "/hub/home"))
    card = page.frame_locator("iframe")
    card.locator("text=Request GPU").click()
    card.locator('[data-state="queued"]').wait_for()
    assert stage.called("POST", "leases")

    def whole_card_is_visible() -> bool:
        inner: float = card.locator("#main").evaluate("e => e.getBoundingClientRect().height")
        outer: float = page.locator("iframe").evaluate("e => e.clientHeight")
        return inner <= outer < inner + 30

    wait_for(whole_card_is_visible, DEADLINE / 1000)


def test_a_card_that_students_pages_could_frame_changes_nothing_and_leads_to_the_page(
    page: Any,
) -> None:
    stage = Stage(card_acts=False)
    try:
        page.goto(stage.url.replace("/services/gpulease/", "/hub/home"))
        card = page.frame_locator("iframe")
        card.locator("a:has-text('Request GPU')").wait_for()
        for state in ("queued", "active", "warned", "ended"):
            stage.put(lease(state))
            card.locator(f'[data-state="{state}"]').wait_for()
            assert card.locator("button, select, input").count() == 0
        card.locator("a:has-text('Request again')").click()
        page.wait_for_url(stage.url)
        page.close()
    finally:
        stage.close()


def test_a_change_without_the_token_is_refused(stage: Stage, page: Any) -> None:
    page.goto(stage.url)
    status = page.evaluate(
        "async (token) => (await fetch('api/leases', {method: 'POST', body: '{}', "
        "headers: {'X-XSRFToken': token}})).status",
        XSRF + "x",
    )
    assert status == 403


def test_time_and_price_are_said_before_asking_on_page_and_card(stage: Stage, page: Any) -> None:
    same: Any = {"pool": "cards", "free": 0, "reserved": 2}
    stage.classes = [
        gpu_class(name="a", queued=2, price=2.0, expected_start=soon(720), **same),
        gpu_class(name="b", title="B", queued=1, price=1.0, expected_start=None, **same),
    ]
    page.goto(stage.url)
    first = text_of(page, "[data-key=class-a]")
    assert "0 of 2 available, 2 reserved, 2 waiting · same GPUs as B · expected" in first
    assert re.search(
        # With the day where that is another one: within 12 minutes of midnight.
        r"expected in about 12 min \(.*\d:\d\d.*\) · an hour counts as 2 GPU-hours",
        first,
    )
    assert "no estimate yet · an hour counts as 1 GPU-hour" in text_of(page, "[data-key=class-b]")
    page.click("label[for=class-a]")
    page.wait_for_selector("text=You get place 3 in the queue; expected in about 12 min")
    page.goto(f"{stage.url}card")
    page.wait_for_selector("#card-class")
    assert "expected in about 12 min" in text_of(page, "#card-class")
    assert page.locator("h1:not(.visually-hidden), h2, a").count() == 0  # the hub's page has them
    stage.put(lease(notebook="week1/lab.ipynb"))
    page.wait_for_selector("text=week1/lab.ipynb")
    page.goto(stage.url)
    page.wait_for_selector("#leases >> text=week1/lab.ipynb")


def test_hours_are_asked_for_only_where_somebody_chose_them(stage: Stage, page: Any) -> None:
    page.goto(stage.url)
    page.select_option("#ask-hours", "2")
    page.click("[data-action=ask]")
    wait_for(lambda: stage.called("POST", "leases"))
    assert stage.called("POST", "leases")[0]["seconds"] == 7200
