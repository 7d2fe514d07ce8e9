"""The GPU in JupyterLab itself: the extension in a real Lab, hub, service, kernels and Chromium."""

import json
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.browser.demo import RunningDemo, running_demo
from tests.browser.test_round import LONG, Lab, log_in
from tests.helpers import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

NOTEBOOK = "lab.ipynb"
CELLS = [
    "import os\nimport time\nfrom tqdm.auto import tqdm\nimport matplotlib.pyplot as plt\n"
    "home = os.getpid()\nvalues = [1, 2]",
    "%%gpu\nfor step in tqdm(range(3)):\n    values.append(step)\n"
    "plt.plot(values)\nplt.show()\nprint('away', os.getpid() != home)",
    "print('home', os.getpid() == home, values)",
    *(f"# {number}" for number in range(40)),
]
STATUS = ".gpulease-status-item"
BUTTON = ".gpulease-button-main"
URGENT = ".gpulease-button.gpulease-urgent"
WARNING = ".Toastify__toast >> text=Your GPU is not used"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    directory = tmp_path_factory.mktemp("demo")
    options = ("--gpus", "1", "--idle", "15", "--warning", "25", "--warm-up", "1")
    with running_demo(directory, *options) as found:
        yield found


def opened(demo: RunningDemo, page: Any, user: str) -> Lab:
    """Log in, start the server, and open the notebook in Lab."""
    demo.write_notebook(user, NOTEBOOK, CELLS)
    log_in(demo, page, user)
    page.goto(f"{demo.url}hub/spawn/{user}", timeout=LONG)
    page.wait_for_url(f"**/user/{user}/lab**", timeout=LONG)
    return Lab(page, address(demo, user))


def address(demo: RunningDemo, user: str) -> str:
    return f"{demo.url}user/{user}/lab/tree/{NOTEBOOK}"


def shown(page: Any, text: str) -> None:
    """Wait until the notebook's button says it."""
    page.wait_for_selector(f"{BUTTON} >> text={text}", timeout=LONG)


def choose(page: Any, item: str) -> None:
    """Choose from the button's menu."""
    page.click(".gpulease-button-menu")
    page.click(f".lm-Menu-item >> text={item}")


def hide(page: Any, hidden: bool) -> None:
    """Let the page believe that its tab is hidden: headless Chromium hides none."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', {value: hidden,"
        " configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')) }",
        hidden,
    )


def test_the_students_whole_path(demo: RunningDemo, profile: Any, chromium: Any) -> None:
    # Another student holds the only GPU, kept so that it stays.
    other = chromium.new_context()
    first = other.new_page()
    log_in(demo, first, "student2")
    first.goto(demo.service)
    first.click("text=Start my server and get a GPU")
    first.wait_for_url("**/services/gpulease/", timeout=LONG)
    first.wait_for_selector('#leases [data-state="active"]', timeout=LONG)
    first.click('[data-action="keep"]')

    page = profile.new_page()
    lab = opened(demo, page, "student")
    page.wait_for_selector(f"{STATUS} >> text=0 of 1 available")
    lab.run(0)
    shown(page, "Request GPU")
    page.click(BUTTON)
    shown(page, "Queued, place 1")
    choose(page, "Why? What comes next?")
    page.wait_for_selector(".jp-Dialog >> text=Your GPU")
    page.click(".jp-Dialog >> text=Close")
    first.click("text=Return it now")
    first.wait_for_selector('#leases [data-state="ended"]', timeout=LONG)
    other.close()

    # It comes by itself, and a cell with a bar and a plot runs on it.
    shown(page, "left")
    assert "away True" in lab.run(1)
    cell = page.locator(".jp-Notebook .jp-Cell >> nth=1")
    assert cell.locator("img").count() == 1
    mark = cell.locator(".gpulease-mark")
    mark.wait_for()
    assert "Ran on the GPU" in mark.get_attribute("aria-label")

    # The panel has the variables, and sorts them.
    page.click(STATUS)
    page.wait_for_selector(".gpulease-table >> text=values")
    names = page.locator(".gpulease-table tbody th")
    page.click(".gpulease-table thead button >> text=Name")
    found = names.all_inner_texts()
    assert found == sorted(found)
    assert {"values", "home"} <= set(found)

    # The warning is seen from anywhere: scrolled away, in another tab.
    page.locator(".jp-Notebook .jp-Cell >> nth=35").scroll_into_view_if_needed()
    hide(page, True)
    page.wait_for_selector(URGENT, timeout=LONG)
    wait_for(lambda: page.title().startswith("GPU · Idle: released in 0:"), 30, "the title")
    hide(page, False)
    wait_for(lambda: "released" not in page.title(), 30, "Lab's own title")
    page.wait_for_selector(WARNING)
    page.click(".Toastify__toast button >> text=Keep")
    shown(page, "left")
    page.wait_for_selector(WARNING, state="detached")

    # Returned, the variables are in the notebook.
    choose(page, "Return GPU")
    shown(page, "Request GPU")
    page.locator(".jp-Notebook .jp-Cell >> nth=2").scroll_into_view_if_needed()
    choose(page, "Run cells on the GPU")  # the click had turned it on
    assert "home True [1, 2, 0, 1, 2]" in lab.run(2)

    # The next cell gets a GPU again, which is reclaimed when nobody uses it.
    assert "away True" in lab.run(1)
    page.wait_for_selector(
        ".Toastify__toast >> text=Your variables are in the notebook", timeout=LONG
    )
    shown(page, "Request GPU")
    assert "home True [1, 2, 0, 1, 2, 0, 1, 2]" in lab.run(2)
    assert "away True" in lab.run(1)

    # What was marked is marked after a reload, and the panel is where it was.
    page.keyboard.press("Control+s")
    saved = demo.home("student") / NOTEBOOK
    wait_for(lambda: '"gpulease"' in saved.read_text(), 30, "the saved mark")
    kept = json.loads(saved.read_text())["cells"][1]["metadata"]["gpulease"]
    assert kept["seconds"] > 0
    assert kept["simulated"] is True
    page.reload(timeout=LONG)
    page.wait_for_selector(".jp-Notebook .jp-Cell >> nth=1 >> .gpulease-mark", timeout=LONG)
    page.wait_for_selector(".gpulease-panel >> text=Variables", timeout=LONG)
    choose(page, "Return GPU")
    shown(page, "Request GPU")


def test_two_tabs_of_one_notebook_tell_the_same(demo: RunningDemo, profile: Any) -> None:
    one = profile.new_page()
    lab = opened(demo, one, "student")
    lab.run(0)
    two = profile.new_page()
    Lab(two, address(demo, "student"))
    two.click(BUTTON)
    for page in (one, two):
        shown(page, "left")
    one.bring_to_front()
    assert "away True" in lab.run(1)
    one.wait_for_selector(".jp-Notebook .jp-Cell >> nth=1 >> .gpulease-mark")
    # The other tab has not run it, and shows no output that it would belong to.
    assert two.locator(".gpulease-mark").count() == 0
    choose(one, "Return GPU")
    for page in (one, two):
        shown(page, "Request GPU")


def test_ten_open_tabs_and_lab_still_saves(demo: RunningDemo, profile: Any) -> None:
    """Browsers open six connections to an origin; a page that held one would stop the others."""
    first = profile.new_page()
    opened(demo, first, "student")
    tabs = [profile.new_page() for _ in range(9)]
    for number, page in enumerate(tabs):
        where = f"{demo.url}user/student/lab/workspaces/w{number}"
        page.goto(where, timeout=LONG, wait_until="commit")
    for page in tabs:
        page.wait_for_selector(STATUS, timeout=LONG)
    first.bring_to_front()
    saved = demo.home("student") / NOTEBOOK
    first.locator(".jp-Notebook .jp-Cell >> nth=0 >> .cm-content").click()
    first.keyboard.press("Control+End")
    first.keyboard.type("\n# saved with ten tabs open")
    first.keyboard.press("Control+s")
    wait_for(lambda: "saved with ten tabs open" in saved.read_text(), 30, "the notebook's file")


def test_a_service_that_restarts_is_waited_for(demo: RunningDemo, profile: Any) -> None:
    """The hub starts its service again by itself; nothing is to be reloaded."""
    page = profile.new_page()
    opened(demo, page, "student")
    page.click(BUTTON)
    shown(page, "left")
    service = [
        process
        for process in psutil.Process(demo.pid).children(recursive=True)
        if process.cmdline()[2:5] == ["-m", "gpulease.cli", "service"]
    ]
    assert len(service) == 1
    service[0].kill()
    page.wait_for_selector(f"{STATUS} >> text=connecting", timeout=LONG)
    shown(page, "left")  # what is held is held
    page.wait_for_selector(f"{STATUS}:not(:has-text('connecting'))", timeout=LONG)
    choose(page, "Return GPU")
    shown(page, "Request GPU")


def test_by_keyboard_alone_and_with_names_for_everything(demo: RunningDemo, profile: Any) -> None:
    page = profile.new_page()
    opened(demo, page, "student")
    # JupyterLab gives the notebook the focus when it has loaded: a menu opened before loses it.
    page.wait_for_selector(".jp-Notebook .jp-CodeCell >> visible=true", timeout=LONG)
    page.wait_for_function("() => document.activeElement.closest('.jp-Notebook') !== null")
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
    page.wait_for_selector(".gpulease-panel h3")
    unnamed = page.evaluate(
        "[...document.querySelectorAll('[class*=gpulease] button, .gpulease-panel input')].filter("
        "b => !(b.innerText || b.title || b.getAttribute('aria-label') || b.labels?.length))"
        ".map(b => b.outerHTML)"
    )
    assert unnamed == []


def test_lab_without_the_server_extension_shows_nothing(demo: RunningDemo, profile: Any) -> None:
    page = profile.new_page()
    page.route("**/gpulease/api/**", lambda route: route.fulfill(status=404, body="{}"))
    lab = opened(demo, page, "student")
    lab.run(0)
    page.wait_for_selector("#jp-main-statusbar >> text=Idle")
    assert page.locator("[class*=gpulease]:visible").count() == 0
