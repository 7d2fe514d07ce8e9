"""The GPU in JupyterLab itself: the extension in a real Lab, hub, service, kernels and Chromium.

One demo, one server, one open page and one beside it serve all tests: to load a Lab costs more than
most tests do.
"""

from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from gpulease.policy.reasons import ACTIVE
from gpulease.service.languages import catalogue
from tests.browser.conftest import DEADLINE
from tests.browser.demo import RunningDemo, in_a_thread, running_demo
from tests.browser.lab import (
    BUTTON,
    CELLS,
    HELD,
    LATE,
    NOTEBOOK,
    OPEN_PANEL,
    PANEL,
    STATUS,
    THEIRS,
    URGENT,
    WARNING,
    Student,
    address,
    choose,
    give_back,
    hide,
    language_pack,
    leases_of,
    message_of_admin,
    return_all,
    saved_mark,
    shown,
    somebody_holds,
    take_back,
)
from tests.browser.pictures import Pictures
from tests.browser.test_round import LONG, Lab, log_in, start
from tests.helpers import wait_for
from tests.pages.stage import lease, soon

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    directory, packages = (tmp_path_factory.mktemp(name) for name in ("demo", "packages"))
    language_pack(packages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(packages))
        with running_demo(directory, "--gpus", "1", "--idle", "3600", "--warm-up", "1") as found:
            yield found


@pytest.fixture(scope="module")
def opened(demo: RunningDemo, chromium: Any) -> Iterator[Student]:
    demo.write_notebook("student", NOTEBOOK, CELLS)
    themes = demo.home("student") / ".jupyter/lab/user-settings/@jupyterlab/apputils-extension"
    themes.mkdir(parents=True)
    (themes / "themes.jupyterlab-settings").write_text('{"adaptive-theme": true}')
    context = chromium.new_context(viewport={"width": 1100, "height": 800})
    context.set_default_timeout(DEADLINE)
    page = context.new_page()
    log_in(demo, page, "student")
    lab = Lab(page, start(demo, NOTEBOOK))
    lab.run(0)
    yield Student(demo, context, page, lab)
    context.close()


@pytest.fixture
def student(opened: Student) -> Iterator[Student]:
    """The student, without a GPU; what the tabs complain about fails the test."""
    complaints: list[str] = []
    opened.context.on("weberror", lambda error: complaints.append(str(error.error)))
    in_a_thread(return_all(opened.demo, "student"))  # what a test before this one left
    shown(opened.page, "Request GPU")
    yield opened
    while opened.last_tests:
        opened.last_tests.pop().close()
    assert not [each for each in complaints if not any(own in each for own in THEIRS)]


def test_the_students_whole_path(
    student: Student, pictures: Pictures, assert_accessible: Callable[..., None]
) -> None:
    demo, page, lab = student.demo, student.page, student.lab
    film = pictures.film("lab")
    page.wait_for_selector(f"{STATUS} >> text=1 of 1 available")
    pictures.take(page, "lab-none")
    film.take(page, "A notebook without a GPU. A click requests one.")
    in_a_thread(somebody_holds(demo))
    page.wait_for_selector(f"{STATUS} >> text=0 of 1 available")
    page.click(BUTTON)
    shown(page, "Queue: next")
    choose(page, "Why? What comes next?")
    page.wait_for_selector(".jp-Dialog >> text=Your GPU")
    page.click(".jp-Dialog >> text=Close")
    page.click(STATUS)
    page.wait_for_selector(OPEN_PANEL)
    pictures.take(page, "lab-queued")
    film.take(page, "All GPUs are in use: you are next in the queue.")
    in_a_thread(return_all(demo, "student2"))

    # It comes by itself, and a cell with a bar and a plot runs on it.
    shown(page, HELD)
    text = page.locator(f"{BUTTON} .gpulease-button-text")
    assert text.evaluate("text => text.scrollWidth <= text.clientWidth"), "the time is cut off"
    assert "away True" in lab.run(1)
    cell = page.locator(".jp-Notebook .jp-Cell >> nth=1")
    assert cell.locator("img").count() == 1
    mark = cell.locator(".gpulease-mark")
    mark.wait_for()
    assert "Ran on the GPU" in mark.get_attribute("aria-label")

    # The panel has the variables, and sorts them.
    page.wait_for_selector(".gpulease-table >> text=values")
    names = page.locator(".gpulease-table tbody th")
    page.click(".gpulease-table thead button >> text=Name")
    found = names.all_inner_texts()
    assert found == sorted(found)
    assert {"values", "home"} <= set(found)
    pictures.take(page, "lab-active")
    film.take(page, "A %%gpu cell runs on the GPU, with the variables of the notebook.")
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
    pictures.take(page, "lab-active-dark")
    assert_accessible(page, PANEL)
    page.emulate_media(color_scheme="light")
    page.wait_for_selector("body[data-jp-theme-light=true]", state="attached")
    assert_accessible(page, PANEL)
    assert_accessible(page, ".gpulease-button")

    # The warning is seen from anywhere: scrolled away, in another tab.
    page.locator(".jp-Notebook .jp-Cell >> nth=35").scroll_into_view_if_needed()
    hide(page, True)
    demo.time_outs(idle=2, idle_under_pressure=2, warning=20)
    page.wait_for_selector(URGENT, timeout=LONG)
    wait_for(lambda: page.title().startswith("GPU · Idle: released in 0:"), 30, "the title")
    hide(page, False)
    wait_for(lambda: "released" not in page.title(), 30, "Lab's own title")
    page.wait_for_selector(WARNING)
    pictures.take(page, "lab-warned")
    film.take(page, "When it is idle, a warning comes first: you can keep it.")
    page.click(".Toastify__toast button >> text=Keep")
    shown(page, HELD)
    page.wait_for_selector(WARNING, state="detached")
    demo.time_outs(**LATE)

    # Returned, the variables are in the notebook.
    give_back(page)
    pictures.take(page, "lab-returned")
    page.locator(".jp-Notebook .jp-Cell >> nth=2").scroll_into_view_if_needed()
    choose(page, "GPU cells: those marked with %%gpu")  # the click had turned another way on
    assert "home True [1, 2, 0, 1, 2]" in lab.run(2)

    # The next cell gets a GPU again, which is reclaimed when nobody uses it.
    assert "away True" in lab.run(1)
    demo.time_outs(idle=1, idle_under_pressure=1, warning=2)
    page.wait_for_selector(
        ".Toastify__toast >> text=Your variables are in the notebook", timeout=LONG
    )
    shown(page, "Request GPU")
    pictures.take(page, "lab-reclaimed")
    film.take(page, "The idle GPU is released: others can use it now.")
    demo.time_outs(**LATE)
    assert "home True [1, 2, 0, 1, 2, 0, 1, 2]" in lab.run(2)
    film.take(page, "The notebook keeps running on the CPU, with everything still there.")
    assert "away True" in lab.run(1)
    film.take(page, "The next %%gpu cell gets a GPU again.")
    film.keep(seconds=20)

    # What was marked is marked after a reload, and the panel is where it was.
    page.keyboard.press("Control+s")
    saved = demo.home("student") / NOTEBOOK
    kept = wait_for(lambda: saved_mark(saved, 1), 30, "the saved mark")
    assert list(kept) == ["gpu_class"]  # nothing that another run of it changes
    page.reload(timeout=LONG)
    page.wait_for_selector(".jp-Notebook .jp-Cell >> nth=1 >> .gpulease-mark", timeout=LONG)
    page.wait_for_selector(".gpulease-panel >> text=Variables", timeout=LONG)
    give_back(page)


def test_a_message_is_shown_once_and_goes_when_it_is_taken_back(student: Student) -> None:
    page = student.page
    toast = ".Toastify__toast >> text=admin: The hub is updated at 18:00."
    told = in_a_thread(message_of_admin(student.demo, "The hub is updated at 18:00."))
    page.wait_for_selector(toast)
    other = student.beside.page
    other.wait_for_selector(STATUS)
    assert other.locator(toast).count() == 0, "this browser has shown it"
    in_a_thread(take_back(student.demo, told))
    page.wait_for_selector(toast, state="detached")


def test_two_tabs_of_one_notebook_tell_the_same(student: Student) -> None:
    one, two = student.page, student.beside.page
    two.click(BUTTON)
    for page in (one, two):
        shown(page, HELD)
    seen = two.locator(".gpulease-mark").count()
    assert "away True" in student.lab.run(1)
    one.wait_for_selector(".jp-Notebook .jp-Cell >> nth=1 >> .gpulease-mark")
    # The other tab has not run it, and shows no output that it would belong to.
    assert two.locator(".gpulease-mark").count() == seen
    give_back(one)
    shown(two, "Request GPU")


def test_a_page_holds_no_connection_of_its_own(student: Student) -> None:
    """Browsers open six to an origin: ten tabs that held one each could not save any more.

    What ends is no such one.  Websockets are counted apart, and Lab has these of its own.
    """
    beside = student.beside
    beside.page.wait_for_selector(STATUS, timeout=LONG)
    wait_for(lambda: not any("gpulease" in x.url for x in beside.open_requests), 30, "their end")
    lab_s = ("/api/kernels/", "/api/events/")
    own = [url for url in beside.sockets if not any(each in url for each in lab_s)]
    assert beside.sockets
    assert not [url for url in own if "gpulease" in url]


@pytest.mark.nightly
def test_ten_open_tabs_and_lab_still_saves(student: Student) -> None:
    for page in [student.tab(f"lab/workspaces/w{number}") for number in range(9)]:
        page.wait_for_selector(STATUS, timeout=LONG)
    first = student.page
    first.bring_to_front()
    saved = student.demo.home("student") / NOTEBOOK
    first.locator(".jp-Notebook .jp-Cell >> nth=0 >> .cm-content").click()
    first.keyboard.press("Control+End")
    first.keyboard.type("\n# saved with ten tabs open")
    first.keyboard.press("Control+s")
    wait_for(lambda: "saved with ten tabs open" in saved.read_text(), 30, "the notebook's file")


def test_a_service_that_restarts_is_waited_for(student: Student, pictures: Pictures) -> None:
    """The hub starts its service again by itself; nothing is to be reloaded."""
    page = student.page
    page.click(BUTTON)
    shown(page, HELD)
    service = [
        process
        for process in psutil.Process(student.demo.pid).children(recursive=True)
        if process.cmdline()[2:5] == ["-m", "gpulease.cli", "service"]
    ]
    assert len(service) == 1
    service[0].kill()
    page.wait_for_selector(f"{STATUS} >> text=connecting", timeout=LONG)
    pictures.take(page, "lab-connecting")
    shown(page, HELD)  # what is held is held
    page.wait_for_selector(f"{STATUS}:not(:has-text('connecting'))", timeout=LONG)
    give_back(page)


def test_by_keyboard_alone_and_with_names_for_everything(student: Student) -> None:
    window = {"start": soon(-60), "end": soon(3600), "end_for_you": soon(3600), "state": "open"}
    window |= {"seats": 4, "claimed": 1}
    reserved = {
        "id": "r1", "group": "cs101", "gpu_class": "t4", "image": "hub.example.org/cs101:2",
        "cancelled": False, "mine": True, "windows": [window],
    }  # fmt: skip
    # The panel reads reservations when it is shown: in this tab it has not been yet.
    page = student.beside.page
    page.route("**/gpulease/api/reservations*", lambda r: r.fulfill(json={"items": [reserved]}))
    page.focus(".gpulease-button-menu")
    page.keyboard.press("Enter")
    page.wait_for_selector(".lm-Menu-item.lm-mod-active")
    page.keyboard.press("End")
    page.keyboard.press("Escape")
    page.wait_for_selector(".lm-Menu", state="detached")
    page.wait_for_function(
        "() => document.activeElement.classList.contains('gpulease-button-menu')"
    )
    page.focus(STATUS)
    page.keyboard.press("Enter")
    page.wait_for_selector(OPEN_PANEL)
    page.wait_for_selector(f"{PANEL}:visible >> text=Image: hub.example.org/cs101:2", timeout=LONG)
    guide = page.locator(f"{PANEL} a >> text=GPU help").get_attribute("href")
    assert "For students" in student.context.request.get(f"{student.demo.url}{guide[1:]}").text()
    unnamed = page.evaluate(
        "[...document.querySelectorAll('[class*=gpulease] button, .gpulease-panel input')].filter("
        "b => !(b.innerText || b.title || b.getAttribute('aria-label') || b.labels?.length))"
        ".map(b => b.outerHTML)"
    )
    assert unnamed == []


def test_states_that_pass_quickly_are_shown(student: Student, pictures: Pictures) -> None:
    """What the server extension would say of them, since nobody can hold a lease there."""
    page, state = student.beside.page, "starting"

    def answer(route: Any) -> None:
        there = lease(state, version=10**9 + (state == "draining"), reason="connecting")
        asked = "status" not in route.request.url
        answered = {} if asked else route.fetch().json() | {"leases": [there]}
        route.fulfill(json=answered)

    page.bring_to_front()
    page.route("**/gpulease/api/status*", answer)
    page.route("**/gpulease/api/leases**", answer)
    page.click(BUTTON)
    shown(page, "Starting: connecting")
    pictures.take(page, "lab-starting")
    state = "draining"
    choose(page, "Cancel the request")
    shown(page, "Saving variables")
    pictures.take(page, "lab-draining")


def test_use_memory_and_what_is_free_of_the_wish_are_shown(student: Student) -> None:
    """What only a real card and a site with several of them would say."""
    page = student.beside.page
    upgrade: Any = {"gpu_class": "a100", "title": "A100 80 GB", "count": 2}
    there = lease("active", version=10**9 + 2, upgrade=upgrade)

    def answer(route: Any) -> None:
        asked = "status" not in route.request.url
        route.fulfill(json={} if asked else route.fetch().json() | {"leases": [there]})

    page.bring_to_front()
    page.route("**/gpulease/api/status*", answer)
    page.route("**/gpulease/api/leases**", answer)
    page.reload()
    page.wait_for_selector(f"{STATUS} >> text=· 3.0 of 8 GB", timeout=LONG)
    if not page.locator(OPEN_PANEL).count():
        page.click(STATUS)
    panel = page.locator(f"{PANEL}:visible")
    panel.get_by_text("3.0 of 8 GB").wait_for()
    assert panel.get_by_role("progressbar").get_attribute("value") == "0.375"
    assert panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth"), "it scrolls sideways"
    with page.expect_request(lambda sent: "leases/lease-1/upgrade" in sent.url) as asked:
        page.click(f"{PANEL}:visible >> text=/Move to 2 . A100 80 GB/")
    assert asked.value.method == "POST"
    # It is said without a look into the panel, and a click there or in the menu takes it.
    toast = page.locator(".Toastify__toast:has-text('What you requested is available now')")
    assert "2 \N{MULTIPLICATION SIGN} A100 80 GB" in toast.inner_text()
    with page.expect_request(lambda sent: "leases/lease-1/upgrade" in sent.url):
        choose(page, "Move to 2")
    with page.expect_request(lambda sent: "leases/lease-1/upgrade" in sent.url):
        toast.get_by_role("button", name="Move").click()
    page.unroute_all(behavior="ignoreErrors")


def test_a_lab_in_german_has_the_services_sentences_in_german(
    student: Student, pictures: Pictures
) -> None:
    page, sentence = student.page, ACTIVE["connected"][0]
    page.click(BUTTON)
    shown(page, HELD)
    with student.speaking("de_DE"):
        german = student.tab("lab/workspaces/german")
        german.click(f"{STATUS}:has-text('Leerlauf-Warnung')", timeout=LONG)
        german.wait_for_selector(f"{PANEL}:visible >> text={catalogue('de').gettext(sentence)}")
        pictures.take(german, "lab-german")
    # One channel serves the server: the page that was opened last decides.
    assert "seven" not in vars(student)
    student.seven.wait_for_selector(BUTTON)
    german.wait_for_selector(f"{PANEL}:visible >> text={sentence}")
    german.wait_for_selector(f"{PANEL}:visible >> text=GPU freigeben")
    give_back(page)


def test_a_part_of_a_card_is_asked_for_with_the_step_to_go_on_with(student: Student) -> None:
    demo, page = student.demo, student.page
    whole = demo.policy()
    (pool,), (name,) = whole["pools"], whole["classes"]
    part = whole["classes"][name] | {"title": "Simulated A100", "parts": 7, "steps": [4]}
    demo.put_policy(
        pools={pool: whole["pools"][pool] | {"parts": 10, "evidence": "cells"}},
        classes={name: part},
    )
    page.click(".gpulease-button-menu")
    # What the menu says is of the moment in which it was opened.
    choice = "Request Simulated A100, 70% of a card, or 40% when others need some"
    while not page.locator(f".lm-Menu-item:has-text('{choice}')").count():
        page.keyboard.press("Escape")
        page.wait_for_selector(".lm-Menu", state="detached")
        page.click(".gpulease-button-menu")
        page.wait_for_selector(".lm-Menu-item")
    page.click(f".lm-Menu-item:has-text('{choice}')")
    shown(page, HELD)
    page.wait_for_selector(f"{STATUS} >> text=Simulated A100, 70% of a card")
    (mine,) = in_a_thread(leases_of(demo, "student"))
    assert (mine["percent"], mine["least_percent"]) == (70, 40)
    give_back(page)
    demo.put_policy(pools={pool: whole["pools"][pool]}, classes={name: whole["classes"][name]})


def test_notebook_7_has_button_marks_and_panel_too(student: Student) -> None:
    page = student.seven
    shown(page, "Request GPU")
    page.click(BUTTON)
    shown(page, HELD)
    cell = page.locator(".jp-Notebook .jp-Cell >> nth=0")
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    cell.locator(".jp-OutputArea-output", has_text="on the GPU").wait_for(timeout=LONG)
    cell.locator(".gpulease-mark").click(timeout=LONG)  # opens the panel
    page.wait_for_selector(OPEN_PANEL)
    page.wait_for_selector(f"{PANEL} >> text=Release GPU")
    give_back(page)


def test_lab_without_the_server_extension_shows_nothing(student: Student) -> None:
    page = student.tab()
    page.route("**/gpulease/api/**", lambda route: route.fulfill(status=404, body="{}"))
    Lab(page, address(student.demo))
    assert page.locator("[class*=gpulease]:visible").count() == 0


def test_the_tour_leads_from_place_to_place_and_the_launcher_to_the_tutorial(
    student: Student,
) -> None:
    page = student.beside.page
    page.bring_to_front()
    page.keyboard.press("Control+Shift+C")
    page.locator(".lm-CommandPalette-input:visible").fill("GPU tour")
    page.click(".lm-CommandPalette-item:has-text('GPU tour')")
    for words in ("One click requests a GPU", "Cells that begin with %%gpu", "after a warning"):
        page.wait_for_selector(f".gpulease-tour >> text={words}")
        place = page.locator(".gpulease-tour").bounding_box()
        assert 0 <= place["x"] <= 1100 - place["width"]
        assert 0 <= place["y"] <= 800 - place["height"]
        page.keyboard.press("Enter")  # the next step has the focus
    page.keyboard.press("Escape")
    page.wait_for_selector(".gpulease-tour", state="detached")
    page.keyboard.press("Control+Shift+L")
    page.click(".jp-LauncherCard:has-text('GPU tutorial')")
    page.wait_for_selector(".jp-Notebook h1:has-text('A GPU in this notebook')", timeout=LONG)


def test_every_state_has_its_picture(pictures: Pictures) -> None:
    """After the tests that take them."""
    states = (
        "none", "queued", "starting", "active", "active-dark", "warned", "draining", "returned",
        "reclaimed", "connecting",
    )  # fmt: skip
    assert {f"lab-{state}" for state in states} <= pictures.taken
