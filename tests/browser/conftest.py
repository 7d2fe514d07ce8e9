"""A real Chromium for the tests of this room: one process, a fresh profile for each test."""

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from tests.browser.demo import RunningDemo, running_demo
from tests.browser.pictures import Pictures
from tests.helpers import chromium_path
from tests.pages.stage import Stage

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DEADLINE = 30_000  # ms; the machine may be busy


# Not of the session: while Playwright lives, its event loop counts as running in this process, and
# no other module's asyncio test could start one.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=["--headless=new", *ARGUMENTS]
        )
        yield browser
        browser.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A failed test leaves pictures of its tabs in its temporary folder."""
    report = yield
    funcargs = getattr(item, "funcargs", {})
    context = funcargs.get("profile") or getattr(funcargs.get("student"), "context", None)
    if report.when == "call" and report.failed and context is not None:
        folder = funcargs["tmp_path_factory"].mktemp("pictures")
        for number, page in enumerate(context.pages):
            page.screenshot(path=folder / f"{number}.png")
        report.sections.append(("pictures", str(folder)))
    return report


@pytest.fixture
def complaints() -> list[str]:
    """What the tabs of a test complained about."""
    return []


@pytest.fixture
def profile(
    chromium: Any, complaints: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A browser profile; what a page complains about fails the test that opened it."""
    context = chromium.new_context(viewport={"width": 1100, "height": 800})
    context.set_default_timeout(DEADLINE)
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    context.on(
        "console",
        lambda message: (
            message.type == "error"
            and "Failed to load resource" not in message.text
            and "WebSocket" not in message.text
            and complaints.append(message.text)
        ),
    )
    yield context
    context.close()
    # JupyterLab rejects a promise so in the second tab of a workspace, and takes another name.
    assert not [each for each in complaints if "Window name candidate" not in each]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Pictures:
    """Where this module's tests put pictures of what they show."""
    return Pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="package")
def shared_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """A demo with three GPUs for all modules of a worker; each says its time-outs."""
    with running_demo(tmp_path_factory.mktemp("demo"), "--gpus", "3") as found:
        yield found


@pytest.fixture
def stage() -> Iterator[Stage]:
    found = Stage()
    yield found
    found.close()


@pytest.fixture
def page(profile: Any, stage: Stage) -> Any:
    """An empty tab beside the stage."""
    return profile.new_page()


#: What WCAG 2.2 asks for at the levels A and AA, as axe-core tags its rules.
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture
def assert_accessible() -> Callable[..., None]:
    """A check that what a tab shows meets WCAG 2.2 AA, by axe-core.

    ``within`` is a CSS selector that narrows it to what is ours, where the rest is JupyterLab's.
    """
    from axe_playwright_python.sync_playwright import Axe

    def check(page: Any, within: str | None = None) -> None:
        options = {
            "resultTypes": ["violations"],
            "runOnly": {"type": "tag", "values": WCAG},
            # Only an experimental rule wants styles ahead, in elements that our policy refuses.
            "preload": False,
        }
        found = Axe().run(page, context=within, options=options)
        # Its own report cannot name what is in a shadow root.
        assert [
            (each["id"], each["help"], [(node["target"], node["html"]) for node in each["nodes"]])
            for each in found.response["violations"]
        ] == []

    return check
