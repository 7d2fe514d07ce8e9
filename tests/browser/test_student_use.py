"""The student's page for everybody: keyboard, names, contrast, theme, weight, and one channel."""

import re
from typing import Any

import pytest

from tests.browser.conftest import DEADLINE
from tests.browser.student import state_shown, text_of
from tests.helpers import wait_for
from tests.pages.stage import Stage, gpu_class, lease, soon

pytestmark = pytest.mark.browser


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


def test_a_lease_shows_the_step_it_is_at_and_its_last_ten_minutes(stage: Stage, page: Any) -> None:
    stage.readings = [
        {"at": soon(-10 * n), "utilisation": n / 60, "memory_used": n << 27}
        for n in range(59, 0, -1)
    ]
    stage.put(lease("active", ends_at=soon(7200), ends_by="hard_limit"))
    page.goto(stage.url)
    page.wait_for_selector(".gl-spark-use path")
    for kind in ("use", "memory"):
        line = page.get_attribute(f".gl-spark-{kind} path", "d") or ""
        assert (line.count("M"), line.count("L")) == (1, 58)
    now = ".gl-phases [aria-current=step]"
    assert re.match(r"In use Hard limit in (2:00:00|1:59:)", text_of(page, now))
    stage.put(lease("active", verdict="idle", ends_at=soon(100), ends_by="idle_warning", version=2))
    page.wait_for_selector(f"{now}:has-text('Idle warning in 1:')")
    stage.put(lease("warned", version=3))
    page.wait_for_selector(f"{now}:has-text('until this GPU is released')")
    stage.put(lease("draining", version=4))
    page.wait_for_selector(f"{now}:has-text('Saving variables')")
    assert not page.is_visible(".gl-sparks")


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
    page.wait_for_function("() => window.linkSaid.some(text => text.includes('Connection lost'))")
    page.wait_for_selector("#gl-link", state="hidden")
    assert stage.opened == 2
    stage.put(lease("warned"))
    state_shown(page, "warned")


SIGNED_OUT = (403, {"title": "An earlier sign-in.", "reason": "xsrf_failed"})


def test_who_signed_out_in_another_tab_reads_so_on_coming_back(stage: Stage, page: Any) -> None:
    stage.put(lease("active"))
    page.goto(stage.url)
    state_shown(page, "active")
    stage.answers |= {"GET classes": SIGNED_OUT, "POST leases/lease-1/keep": SIGNED_OUT}
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    page.wait_for_selector("#gl-link >> text=You have been signed out. Sign in again.")
    assert page.locator("#gl-link a").get_attribute("href") == stage.url
    wait_for(lambda: not stage.sockets, DEADLINE / 1000, "nothing more is told to it")
    page.evaluate("document.querySelector('[data-action=keep]').disabled = false")
    page.click("[data-action=keep]")
    wait_for(lambda: stage.called("POST", "leases/lease-1/keep"))
    page.wait_for_selector("[data-action=end]:enabled")
    assert page.locator("#gl-alerts .alert").count() == 0, "it is said once"


def test_what_a_service_that_was_away_left_on_the_page_goes(stage: Stage, page: Any) -> None:
    stage.put(lease("warned"))
    page.goto(stage.url)
    state_shown(page, "warned")
    page.route("**/api/**", lambda route: route.abort())
    page.click("[data-action=keep]")
    page.wait_for_selector("#gl-alerts >> text=The lease service does not answer.")
    page.wait_for_selector("#gl-link >> text=Connection lost. Reconnecting")
    page.unroute("**/api/**")
    page.wait_for_selector("#gl-alerts .alert", state="detached")
    page.wait_for_selector("#gl-link", state="hidden")


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


def test_the_whole_page_is_reached_by_keyboard(stage: Stage, page: Any) -> None:
    stage.put(lease("warned"))
    page.goto(stage.url)
    state_shown(page, "warned")
    reached = []
    for _ in range(11):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.innerText.trim()"))
    order = [words for words in reached if words]
    assert order == [
        "Skip to content", "Home", "My GPU", "Help", "English\nDeutsch\nFrançais", "Logout",
        "Keep for 15\xa0min", "Release GPU", "Open my server",
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


def test_over_a_slow_network_one_ask_is_sent_however_often_it_is_clicked(
    stage: Stage, page: Any
) -> None:
    slow = {"offline": False, "latency": 800, "downloadThroughput": 1e5, "uploadThroughput": 1e5}
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    network.send("Network.emulateNetworkConditions", slow)
    page.goto(stage.url)
    button = page.locator("button:has-text('Request GPU')")
    # In one go, whatever the load: no answer comes between the two clicks.
    button.evaluate("it => { it.click(); it.click() }")
    state_shown(page, "queued")
    assert len(stage.called("POST", "leases")) == 1
