"""The main job as a student sees it: real hub, proxy, service, servers, kernels and Chromium."""

import re
from typing import Any

import pytest

from tests.browser.demo import RunningDemo
from tests.browser.pictures import Pictures
from tests.browser.test_policy_page import in_editor, put_in_editor
from tests.helpers import WaitedTooLongError, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

LONG = 120_000  # ms: a server starts, a lease starts, on a busy machine
# The notebook's own indicator says idle before there is a kernel; the status bar does not.
IDLE = "#jp-main-statusbar >> text=/[|] Idle/"
NOTEBOOK = "round.ipynb"
CELLS = [
    "import os\nvalues = list(range(5))\nhome = os.getpid()",
    "!nvidia-smi > /dev/null 2>&1\nvalues.append(sum(values))\n"
    "print('ran', 'at home' if os.getpid() == home else 'away')",
    "%gpu off",
    "print('still', values)",
    "%%gpu\nvalues.append(99)\nprint('again', values, os.getpid() != home)",
    "print('kept', values, os.getpid() == home)",
]


@pytest.fixture(scope="module")
def demo(shared_demo: RunningDemo) -> RunningDemo:
    """The demo with time-outs that one can wait for, and warnings long enough to be looked at."""
    shared_demo.prepare(idle=8, warning=12, warm_up=1)
    return shared_demo


def log_in(demo: RunningDemo, page: Any, name: str) -> None:
    page.goto(f"{demo.url}hub/login")
    page.fill("#username_input", name)
    page.fill("#password_input", name)
    page.click("#login_submit")
    page.wait_for_url("**/hub/home")


def start(demo: RunningDemo, notebook: str) -> str:
    """Return the address that starts the student's server, and then is the notebook's in Lab."""
    return f"{demo.url}hub/spawn/student?next=/user/student/lab/tree/{notebook}"


class Lab:
    """JupyterLab with one notebook open, in a tab."""

    def __init__(self, page: Any, address: str) -> None:
        self._page = page
        page.goto(address, timeout=LONG)
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=LONG)
        page.wait_for_selector(IDLE, timeout=LONG)

    def run(self, number: int) -> str:
        """Run the cell and return what it shows."""
        self._page.bring_to_front()
        cell = self._page.locator(f".jp-Notebook .jp-Cell >> nth={number}")
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.inner_text()
        wait_for(lambda: self._started(cell, prompt, before), LONG / 1000, f"cell {number} to run")
        wait_for(
            lambda: re.search(r"\[\d+\]", prompt.inner_text()), LONG / 1000, f"cell {number} to end"
        )
        self._page.wait_for_selector(IDLE, timeout=LONG)
        return "\n".join(cell.locator(".jp-OutputArea-output").all_inner_texts())

    def _started(self, cell: Any, prompt: Any, before: str) -> bool:
        """Press the keys; a Lab that is still laying out its page may not have heard them."""
        cell.locator(".cm-content").click()
        self._page.keyboard.press("Shift+Enter")
        try:
            wait_for(lambda: prompt.inner_text() != before, 10, "the cell's prompt to change")
        except WaitedTooLongError:
            return False
        return True


def lease_shown(page: Any, state: str) -> None:
    page.wait_for_selector(f'#leases [data-state="{state}"]', timeout=LONG)


def test_the_whole_round(demo: RunningDemo, profile: Any, pictures: Pictures) -> None:
    demo.write_notebook("student", NOTEBOOK, CELLS)
    hub = profile.new_page()
    log_in(demo, hub, "student")
    tab = profile.new_page()
    lab = Lab(tab, start(demo, NOTEBOOK))
    lab.run(0)

    # A click on the hub's page: a plain cell then runs on the GPU.
    hub.bring_to_front()
    hub.goto(f"{demo.url}hub/home")
    card = hub.frame_locator("iframe")
    card.locator("text=simulated").first.wait_for()
    pictures.take(hub, "hub-home")
    card.locator("a:has-text('Request GPU')").click()
    hub.click("button:has-text('Request GPU')")
    lease_shown(hub, "active")
    pictures.take(hub, "page-active")
    assert "ran away" in lab.run(1)

    # Left alone it is warned; Keep keeps it, Return ends it, nothing is lost.
    page = profile.new_page()
    page.goto(demo.service)
    lease_shown(page, "warned")
    assert re.fullmatch(r"0:(1[0-2]|0\d)", page.inner_text(".gl-clock"))
    pictures.take(page, "page-warned")
    page.click('[data-action="keep"]')
    lease_shown(page, "active")
    page.click("text=Release GPU")
    lease_shown(page, "ended")
    pictures.take(page, "page-ended")
    lab.run(2)
    assert "still [0, 1, 2, 3, 4, 10]" in lab.run(3)

    # The next %%gpu cell asks by itself, and finds its variables there; idle reclaim takes it.
    assert "again [0, 1, 2, 3, 4, 10, 99] True" in lab.run(4)
    page.bring_to_front()
    lease_shown(page, "active")
    lease_shown(page, "ended")
    assert "was not used" in page.inner_text("#leases")
    assert "kept [0, 1, 2, 3, 4, 10, 99] True" in lab.run(5)
    assert "again [0, 1, 2, 3, 4, 10, 99, 99] True" in lab.run(4)
    page.bring_to_front()
    page.click("text=Release GPU")
    lease_shown(page, "ended")


def test_start_my_server_and_get_a_gpu_then_an_admin_ends_it(
    demo: RunningDemo, profile: Any, chromium: Any, pictures: Pictures
) -> None:
    page = profile.new_page()
    log_in(demo, page, "student2")
    page.goto(demo.service)
    page.click("text=Start my server and get a GPU")
    page.wait_for_url("**/user/student2/lab**", timeout=LONG)
    page.goto(demo.service)
    lease_shown(page, "active")
    other = chromium.new_context()
    try:
        admin = other.new_page()
        log_in(demo, admin, "admin")
        admin.goto(f"{demo.service}admin")
        admin.wait_for_selector("[aria-label='End the lease of student2']")
        pictures.take(admin, "admin")
        admin.click("[aria-label='End the lease of student2']")
        admin.fill("#end-note", "The room closes <b>now</b>.")
        admin.click("#end-submit")
        lease_shown(page, "ended")
        assert "The room closes <b>now</b>." in page.inner_text(".gl-note")
        admin.click("[data-tab=history]")
        admin.wait_for_selector("#ended >> text=The room closes", timeout=LONG)
    finally:
        other.close()


def test_the_instructor_sees_the_group_and_no_admin_page(
    demo: RunningDemo, profile: Any, pictures: Pictures
) -> None:
    page = profile.new_page()
    log_in(demo, page, "instructor")
    page.goto(f"{demo.service}group")
    page.wait_for_selector("#table [data-key]")
    pictures.take(page, "instructor")
    answer = page.goto(f"{demo.service}admin")
    assert answer.status == 403


def test_an_admin_changes_a_time_out_on_a_page(
    demo: RunningDemo, profile: Any, pictures: Pictures
) -> None:
    page = profile.new_page()
    log_in(demo, page, "admin")
    page.goto(f"{demo.service}policy")
    page.click("#advanced summary")
    page.wait_for_function("() => document.getElementById('policy-text').value?.length > 0")
    text = in_editor(page)
    put_in_editor(page, f"{text}\nnonsense: 1\n")
    page.click("#policy-check")
    page.wait_for_selector(".gl-finding-error")
    number = in_editor(page).splitlines().index("nonsense: 1") + 1
    assert f"Line {number}" in page.inner_text(".gl-finding-error")
    pictures.take(page, "policy")
    before = page.inner_text("#policy-state")
    put_in_editor(page, f"{text}\n# looked at\n")
    page.click("#policy-save")
    page.click("#save-submit")
    page.wait_for_selector("text=(in force)")

    def saved() -> bool:
        state = page.inner_text("#policy-state")
        return state != before and "by admin" in state

    wait_for(saved, what="the saved version")


def test_live_pages_ask_the_hub_nothing_and_leave_the_browser_free(
    demo: RunningDemo, profile: Any
) -> None:
    """A browser has six connections to one address: pages that held one each would block it."""
    first = profile.new_page()
    log_in(demo, first, "student")
    first.goto(demo.service)
    first.wait_for_selector("#leases [data-key]", timeout=LONG, state="attached")
    asked: list[str] = []
    profile.on("request", lambda request: asked.append(request.url))
    pages = [profile.new_page() for _ in range(8)]
    for page in pages:
        page.goto(demo.service, wait_until="commit")
    for page in pages:
        page.wait_for_selector("#leases [data-key]", timeout=LONG, state="attached")
    assert len([url for url in asked if url == demo.service]) == len(pages)
    assert not [url for url in asked if url.startswith(f"{demo.url}hub/api")]
    # With all of them live the hub's own page loads.
    first.goto(f"{demo.url}hub/home")
    live = "() => document.getElementById('gl-link').hidden"
    assert all(page.evaluate(live) for page in pages)


def test_every_role_has_its_pictures(pictures: Pictures) -> None:
    """After the tests that take them."""
    student = {"hub-home", *(f"page-{state}" for state in ("active", "warned", "ended"))}
    assert {*student, "instructor", "admin", "policy"} <= pictures.taken
