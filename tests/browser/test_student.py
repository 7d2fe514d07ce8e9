"""The student's page and the card in a real browser, in every state a lease can be in."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import DEADLINE
from tests.helpers import wait_for
from tests.pages.stage import XSRF, Stage, gpu_class, lease, soon

pytestmark = pytest.mark.browser


def text_of(page: Any, selector: str) -> str:
    found: str = page.inner_text(selector)
    return " ".join(found.split())


def state_shown(page: Any, state: str, where: str = "#leases") -> None:
    page.wait_for_selector(f'{where} [data-state="{state}"]')


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


def test_what_cannot_leave_is_named_and_the_busy_share_shown(stage: Stage, page: Any) -> None:
    found: Any = [
        {"name": f"v{n}", "reason": "not_home", "sentence": f"why {n}", "size": None}
        for n in range(5)
    ]
    said = "The GPU was idle. Cannot leave: `v0` (why 0), `v1` (why 1), `v2` (why 2), 2 more."
    stage.put(lease(sentence=said, blockers=found, busy_share=0.35))
    page.goto(stage.url)
    state_shown(page, "active")
    assert "Cannot leave: `v0` (why 0)" in text_of(page, "#leases")
    assert "Busy 35 % of that time" in text_of(page, "#leases")
    page.click("summary")
    assert page.locator(".gl-blockers li").all_inner_texts()[4] == "v4: why 4"
    end: Any = {"reason": "idle", "sentence": "Lost.", "note": "", "at": soon(-5), "lost": found}
    stage.put(lease("ended", end=end))
    page.wait_for_selector("text=5 variables are lost")


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
    page.wait_for_url("**/hub/spawn/ada?next=%2Fservices%2Fgpulease%2F")
    assert len(stage.called("POST", "leases")) == 1


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


@pytest.mark.parametrize("where", ["", "card"])
def test_every_state_is_shown_as_it_comes(stage: Stage, page: Any, where: str) -> None:
    place = "#card" if where else "#leases"
    stage.put(lease("queued", position=3, sentence="All are held.", next_step="Wait or leave."))
    page.goto(stage.url + where)
    state_shown(page, "queued", place)
    seen = text_of(page, place)
    assert "Place in the queue 3" in seen
    assert "Expected unknown" in seen
    stage.put(lease("queued", position=1, expected_start=soon(180)))
    page.wait_for_selector("text=1 (next)")
    assert "in about 3 min" in text_of(page, place)
    stage.put(lease("starting"))
    state_shown(page, "starting", place)
    assert "Starting a process on the GPU" in text_of(page, '[aria-current="step"]')
    stage.put(lease("starting", reason="connecting"))
    page.wait_for_selector('[aria-current="step"]:has-text("Connecting your notebook")')
    stage.put(lease("active", idle_end=soon(50)))
    state_shown(page, "active", place)
    seen = text_of(page, place)
    for words in ("Simulated GPU 0", "40 %", "in use"):
        assert words in seen
    assert re.search(r"Maximum time left (1:00:00|59:\d\d)", seen)
    assert re.search(r"Warning, if it stays so 0:(50|4\d)", seen)
    assert page.is_disabled('[data-action="keep"]')
    stage.put(lease("warned", sentence="It was idle for 60 s."))
    state_shown(page, "warned", place)
    assert "It was idle for 60 s." in text_of(page, place)
    assert re.fullmatch(r"0:(20|1\d)", text_of(page, ".gl-clock"))
    assert "Keep it 15 min 2 left" in text_of(page, place)
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


def test_keep_and_return_are_asked_of_the_service(stage: Stage, page: Any) -> None:
    stage.put(lease("warned"))
    page.goto(stage.url)
    page.click('[data-action="keep"]')
    state_shown(page, "active")
    page.click("text=Return it now")
    state_shown(page, "draining")
    verbs = [(verb, path) for verb, path, _ in stage.calls if path.startswith("leases/")]
    assert verbs == [("POST", "leases/lease-1/keep"), ("DELETE", "leases/lease-1")]


def test_the_countdown_runs_and_is_not_read_out_each_second(stage: Stage, page: Any) -> None:
    stage.put(lease("active"))
    page.goto(stage.url)
    state_shown(page, "active")
    stage.put(lease("warned", sentence="It was idle for 60 s."))
    state_shown(page, "warned")
    assert "It was idle for 60 s." in text_of(page, "#gl-live")
    page.evaluate(
        """() => { window.said = 0; new MutationObserver(() => window.said++).observe(
          document.getElementById('gl-live'),
          {childList: true, characterData: true, subtree: true}) }"""
    )
    first = text_of(page, ".gl-clock")
    wait_for(lambda: text_of(page, ".gl-clock") < first, what="the countdown to go on")
    second = text_of(page, ".gl-clock")
    wait_for(lambda: text_of(page, ".gl-clock") < second, what="the countdown to go on")
    assert page.evaluate("window.said") == 0
    assert page.get_attribute(".gl-clock", "role") == "timer"
    assert page.locator(".gl-clock").evaluate("e => !e.closest('[aria-live]')")


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


def test_focus_stays_where_it_is_when_the_page_changes(stage: Stage, page: Any) -> None:
    stage.put(lease("active", keep={"allowed": True, "left": 3, "seconds": 900, "reason": ""}))
    page.goto(stage.url)
    page.focus('[data-action="keep"]')
    stage.put(lease("warned"))
    state_shown(page, "warned")
    assert page.evaluate("document.activeElement.dataset.action") == "keep"


#: Keeps what the page says of its link while that is shown.
NOTE_LINK = """() => {
    const link = document.getElementById("gl-link");
    window.linkSaid = [];
    const note = () => link.hidden || window.linkSaid.push(link.innerText);
    new MutationObserver(note).observe(link, {attributes: true, childList: true});
}"""


def test_a_lost_link_is_said_and_mended(stage: Stage, page: Any) -> None:
    stage.put(lease("active"))
    page.goto(stage.url)
    state_shown(page, "active")
    page.evaluate(NOTE_LINK)  # the link may be back before anybody looks
    stage.drop()
    page.wait_for_function("() => window.linkSaid.some(text => text.includes('may be old'))")
    page.wait_for_selector("#gl-link", state="hidden")
    assert stage.opened == 2
    stage.put(lease("warned"))
    state_shown(page, "warned")


def test_tabs_share_one_channel_that_outlives_the_one_that_opened_it(
    stage: Stage, profile: Any
) -> None:
    stage.put(lease("queued"))
    first, second = profile.new_page(), profile.new_page()
    first.goto(stage.url)
    state_shown(first, "queued")
    second.goto(stage.url)
    state_shown(second, "queued")  # at once, from what the first has heard
    stage.put(lease("active"))
    for tab in (first, second):
        state_shown(tab, "active")
    first.close()
    stage.put(lease("warned"))
    state_shown(second, "warned")
    assert stage.opened == 1
    stage.drop()
    wait_for(lambda: stage.opened == 2, DEADLINE / 1000, "the channel again")
    stage.put(lease("draining"))
    state_shown(second, "draining")
    second.close()
    wait_for(lambda: not stage.sockets, DEADLINE / 1000, "nobody looks any more")


def test_a_browser_without_shared_workers_has_a_channel_for_each_tab(
    stage: Stage, profile: Any
) -> None:
    profile.add_init_script("delete window.SharedWorker")
    stage.put(lease("active"))
    tabs = [profile.new_page() for _ in range(2)]
    for tab in tabs:
        tab.goto(stage.url)
        state_shown(tab, "active")
    assert stage.opened == 2
    stage.drop()
    stage.put(lease("warned"))
    for tab in tabs:
        state_shown(tab, "warned")


def test_notes_and_names_stay_text(stage: Stage, page: Any) -> None:
    evil = '<img src=x onerror="document.title=1"><b>bold</b>'
    end = {"reason": "forced", "sentence": evil, "note": evil, "at": soon(-5)}
    stage.classes = [gpu_class(title=evil)]
    stage.put(lease("ended", end=end, server=evil, next_step=evil))
    stage.ended = [stage.leases["lease-1"]]
    page.goto(stage.url)
    state_shown(page, "ended")
    page.wait_for_selector("#history-list li")
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
    assert text_of(page, ".gl-note") == "From the admin: No."
    stage.put(lease("warned", sentence="Idle. It is released at 11:58:36 UTC."))
    state_shown(page, "warned")
    assert text_of(page, ".gl-sentence") == "Idle. It is released at 17:28:36."
    context.close()


def test_another_persons_lease_is_not_mine(stage: Stage, page: Any) -> None:
    stage.put(lease("active", user="grace"))
    page.goto(stage.url)
    page.wait_for_selector("text=You have no GPU")
    assert page.locator("[data-state]").count() == 0


def test_earlier_leases_are_paged(stage: Stage, page: Any) -> None:
    stage.ended = [lease("ended", id=f"old-{n}") for n in range(23)]
    page.goto(stage.url)
    page.wait_for_selector("text=1 to 10 of 23")
    page.click("text=Older")
    page.wait_for_selector("text=11 to 20 of 23")
    page.click("text=Older")
    page.wait_for_selector("text=21 to 23 of 23")
    assert page.is_disabled("text=Older")
    assert page.locator("#history-list li").count() == 3


def test_the_whole_page_is_reached_by_keyboard(stage: Stage, page: Any) -> None:
    stage.put(lease("warned"))
    page.goto(stage.url)
    state_shown(page, "warned")
    reached = []
    for _ in range(10):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.innerText.trim()"))
    order = [words for words in reached if words]
    assert order == [
        "Skip to content", "Home", "My GPU", "English\nDeutsch\nFrançais", "Logout",
        "Keep it 15 min", "Return it now", "Open my server",
    ]  # fmt: skip
    page.locator('[data-action="keep"]').focus()
    page.keyboard.press("Enter")
    state_shown(page, "active")


NAMELESS = """() =>
  [...document.querySelectorAll("a, button, input, select, textarea, [role=timer]")]
  .filter(e => e.type !== 'hidden' && e.offsetParent !== null)
  .filter(e => !(e.innerText || '').trim() && !e.getAttribute('aria-label')
    && !(e.labels && e.labels.length) && !e.querySelector('img[alt]'))
  .map(e => e.outerHTML)"""


#: What stands on a page together: what has ended is shown where nothing has followed it.
TOGETHER = [("queued", "starting", "active", "warned", "draining"), ("ended",)]


@pytest.mark.parametrize("states", TOGETHER)
def test_it_fits_and_every_control_has_a_name(
    stage: Stage, page: Any, states: tuple[str, ...]
) -> None:
    stage.classes.append(gpu_class(name="other", title="A rather long name of a GPU class"))
    for state in states:
        stage.put(lease(state, id=state, server=f"{state}-with-a-name-of-thirty"))
    for path in ("", "card"):
        page.goto(stage.url + path)
        for state in states:
            page.wait_for_selector(f'[data-state="{state}"]')
        for width in (320, 1280):
            page.set_viewport_size({"width": width, "height": 700})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(NAMELESS) == []


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c;
    canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const f = [r, g, b].map(v => v / 255).map(
    v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
  const behind = (e) => { for (; e; e = e.parentElement) {
    const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; }
    return [255, 255, 255]; };
  const bad = [];
  for (const e of document.querySelectorAll('main *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || e.offsetParent === null || e.disabled || e.closest('.visually-hidden')) continue;
    const style = getComputedStyle(e);
    const front = rgba(style.color), back = behind(e), a = front[3] / 255;
    const mixed = front.slice(0, 3).map((v, i) => v * a + back[i] * (1 - a));
    const [x, y] = [light(mixed), light(back)].sort((m, n) => n - m);
    const ratio = (x + .05) / (y + .05);
    if (ratio < 4.5) bad.push(`${e.className || e.tagName}: ${e.innerText} ${ratio.toFixed(2)}`);
  }
  return bad; }"""


@pytest.mark.parametrize("states", TOGETHER)
def test_text_stands_out(stage: Stage, page: Any, states: tuple[str, ...]) -> None:
    page.emulate_media(reduced_motion="reduce")
    stage.classes.append(gpu_class(name="other", free=0, queued=1))
    for state in states:
        stage.put(lease(state, id=state, server=state))
    page.goto(stage.url)
    for state in states:
        page.wait_for_selector(f'[data-state="{state}"]')
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.wait_for_selector(f'html[data-bs-theme="{theme}"]', state="attached")
        assert page.evaluate(CONTRAST) == []


def test_the_theme_is_the_hubs_and_is_toggled_for_both(stage: Stage, profile: Any) -> None:
    home, page = profile.new_page(), profile.new_page()
    home.goto(stage.url.replace("/services/gpulease/", "/hub/home"))
    card = home.frame_locator("iframe")
    card.locator("#card >> text=Request GPU").wait_for()
    page.goto(stage.url)
    page.click("#gl-theme")
    assert page.get_attribute("html", "data-bs-theme") == "dark"
    assert page.evaluate("localStorage.getItem('jupyterhub-bs-theme')") == "dark"
    card.locator('html[data-bs-theme="dark"]').wait_for()


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


def test_who_holds_is_told_that_others_wait(stage: Stage, page: Any) -> None:
    stage.put(lease())
    page.goto(stage.url)
    page.wait_for_selector(".gl-lease")
    assert page.locator(".gl-others").count() == 0
    stage.put_classes([gpu_class(free=0, queued=2)])
    page.wait_for_selector(".gl-others:has-text('2 others wait for such a GPU')")
    stage.put_classes([gpu_class(free=0, queued=1)])
    page.wait_for_selector(".gl-others:has-text('1 person waits for such a GPU')")


def test_time_and_price_are_said_before_asking_on_page_and_card(stage: Stage, page: Any) -> None:
    stage.classes = [
        gpu_class(name="a", free=0, queued=2, price=2.0, expected_start=soon(720)),
        gpu_class(name="b", free=0, queued=1, price=1.0, expected_start=None),
    ]
    page.goto(stage.url)
    first = text_of(page, "[data-key=class-a]")
    assert re.search(
        r"expected in about 12 min \(\d\d:\d\d.*\) · an hour counts as 2 GPU-hours", first
    )
    assert "not known yet · an hour counts as 1 GPU-hour" in text_of(page, "[data-key=class-b]")
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


def test_what_is_reserved_next_and_left_this_week_is_said(stage: Stage, page: Any) -> None:
    window = {
        "start": soon(7200), "end": soon(14400), "state": "coming", "seats": 20, "claimed": 0,
        "at": "", "reserved": 20,
    }  # fmt: skip
    over = window | {"state": "over", "start": soon(-7200), "end": soon(-3600)}
    lab = {
        "name": "lab",
        "title": "Lab 3",
        "group": "cs101",
        "gpu_class": "sim",
        "image": "cs101/torch",
    }
    stage.reservations = [lab | {"windows": [over, window]}]
    budget = {"left": 3.25, "of": 10.0, "until": soon(86400), "whose": "person", "at_zero": "end"}
    stage.projects = [
        {"name": "thesis", "title": "Thesis", "mine": True, "budget": budget},
        {"name": "other", "title": "Other", "mine": False, "budget": budget},
    ]
    page.goto(stage.url)
    page.wait_for_selector("#mine >> text=Next reserved: Lab 3")
    said = page.inner_text("#mine")
    assert "20 seats of sim for cs101. Its image: cs101/torch." in said
    assert "in about 2 h" in said
    assert "Thesis: 3.3 of 10 GPU-hours left" in said
    assert "Other" not in said


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
    done = {"state": "ended", "outcome": "succeeded", "ended": soon(-5)}
    stage.runs = [
        run("running", cells=9, done=4, gpu="You hold a GPU."),
        run("good", opens="a b/good.run-1.ipynb", **done),
        run("wrong", index=7, **done | {"outcome": "failed"}),
    ]
    event = {"at": soon(-50), "who": "ada", "what": "server_gone", "note": "why"}
    stage.run_events = [event | {"sentence": "Fault: its notebook server ended."}]
    page.goto(stage.url)
    first = page.locator(".gl-run").nth(0)
    first.locator("text=It is running. You hold a GPU.").wait_for()
    assert first.locator("progress").evaluate("bar => [bar.value, bar.max]") == [4, 9]
    assert page.locator(".gl-run-state").all_inner_texts() == ["Running", "Done", "Failed"]
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


def test_hours_are_asked_for_only_where_somebody_chose_them(stage: Stage, page: Any) -> None:
    page.goto(stage.url)
    page.select_option("#ask-hours", "2")
    page.click("[data-action=ask]")
    wait_for(lambda: stage.called("POST", "leases"))
    assert stage.called("POST", "leases")[0]["seconds"] == 7200


#: Bytes of the first load of a page, all that it fetches, as they come over the wire.
FIRST_LOAD = """() => performance.getEntriesByType('resource').concat(
  performance.getEntriesByType('navigation')).map((e) => [e.name, e.transferSize])"""


def test_the_students_page_is_light(stage: Stage, page: Any) -> None:
    stage.put(lease("active"))
    page.goto(stage.url)
    state_shown(page, "active")
    sizes = dict(page.evaluate(FIRST_LOAD))
    ours = {name: size for name, size in sizes.items() if "/hub/static/" not in name}
    assert len(ours) > 10
    # The hub's own style and fonts are on every page of the hub, and cached from there.
    assert sum(ours.values()) < 200_000, sorted(ours.items(), key=lambda each: -each[1])
