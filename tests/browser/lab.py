"""A student's JupyterLab with the GPU extension: what its tests look at and do."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gpulease.demo.browse import Browser
from tests.browser.demo import RunningDemo
from tests.browser.test_round import LONG, Lab

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
PANEL = ".gpulease-panel"
WARNING = ".Toastify__toast >> text=Your GPU is idle and will be released"
HELD = "/left|Idle warning in/"  # what the button says of a GPU that one has
OPEN_PANEL = f"{PANEL} h3:visible"
#: JupyterLab rejects a promise so in the second tab of a workspace, and takes another name.
#: Notebook 7 looks for a command and a schema that it has not loaded.
THEIRS = ("Window name candidate", "filebrowser:open-path", "(reading 'schema')")
#: Nobody is warned but by a test that wants it.
LATE = {"idle": 3600, "idle_under_pressure": 3600, "warning": 60}


@dataclass
class Beside:
    """The notebook in a second tab, and what that asked of the server from its first moment."""

    page: Any
    open_requests: set[Any] = field(default_factory=set)
    sockets: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("request", lambda request: self.open_requests.add(request))
        for over in ("requestfinished", "requestfailed"):
            self.page.on(over, lambda request: self.open_requests.discard(request))
        self.page.on("websocket", lambda socket: self.sockets.append(socket.url))


@dataclass
class Student:
    """One student with a JupyterLab open on the notebook."""

    demo: RunningDemo
    context: Any
    page: Any
    lab: Lab
    last_tests: list[Any] = field(default_factory=list)  # tabs that a test opened for itself

    def tab(self, where: str = "") -> Any:
        """Open the notebook in another tab, or another Lab without it."""
        page = self.context.new_page()
        self.last_tests.append(page)
        if where:
            page.goto(f"{self.demo.url}user/student/{where}", timeout=LONG, wait_until="commit")
        return page

    @cached_property
    def beside(self) -> Beside:
        """The second tab, opened when it is asked for first."""
        beside = Beside(self.context.new_page())
        Lab(beside.page, address(self.demo))
        return beside

    @cached_property
    def seven(self) -> Any:
        """The same for Notebook 7, with a notebook of its own."""
        self.demo.write_notebook("student", "seven.ipynb", ["%%gpu\nprint('on the GPU')"])
        page = self.context.new_page()
        page.goto(f"{self.demo.url}user/student/notebooks/seven.ipynb", timeout=LONG)
        return page

    @contextmanager
    def speaking(self, locale: str) -> Iterator[None]:
        """Have Labs that are opened meanwhile in a language."""
        settings = self.demo.home("student") / ".jupyter/lab/user-settings/@jupyterlab"
        chosen = settings / "translation-extension" / "plugin.jupyterlab-settings"
        chosen.parent.mkdir(parents=True)
        chosen.write_text(json.dumps({"locale": locale}))
        yield
        chosen.unlink()


def language_pack(folder: Path) -> None:
    """Make a package of a language, as Lab wants one before it takes any other's texts in it."""
    (folder / "lab_in_german.py").touch()
    about = folder / "lab_in_german-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lab_in_german\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[jupyterlab.languagepack]\nde_DE = lab_in_german\n")


def address(demo: RunningDemo) -> str:
    return f"{demo.url}user/student/lab/tree/{NOTEBOOK}"


def shown(page: Any, text: str) -> None:
    """Wait until the notebook's button says it."""
    page.wait_for_selector(f"{BUTTON} >> text={text}", timeout=LONG)


def choose(page: Any, item: str) -> None:
    """Choose from the button's menu."""
    page.click(".gpulease-button-menu")
    page.click(f".lm-Menu-item >> text={item}")


def give_back(page: Any) -> None:
    choose(page, "Release GPU")
    shown(page, "Request GPU")


def hide(page: Any, hidden: bool) -> None:
    """Let the page believe that its tab is hidden: headless Chromium hides none."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', {value: hidden,"
        " configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')) }",
        hidden,
    )


async def somebody_holds(demo: RunningDemo) -> None:
    """Another student's server starts, and holds the only GPU."""
    async with Browser(demo.url) as other, asyncio.timeout(LONG / 1000):
        await other.log_in("student2", "student2")
        await other.spawn()
        await other.open_service()
        asked = await other.service_api("POST", "leases", {"server": "", "origin": "page"})
        async for event in other.service_events():
            seen = event.get("leases") or [event.get("lease") or {}]
            if any(each.get("id") == asked["id"] and each["state"] == "active" for each in seen):
                return


async def leases_of(demo: RunningDemo, user: str) -> list[Any]:
    """Return what this person has or asked for."""
    async with Browser(demo.url) as browser:
        await browser.log_in(user, user)
        await browser.open_service()
        return list((await browser.service_api("GET", "leases?mine=1&state=live"))["items"])


async def return_all(demo: RunningDemo, user: str) -> None:
    """End whatever this person has or asked for."""
    async with Browser(demo.url) as browser:
        await browser.log_in(user, user)
        await browser.open_service()
        for lease in (await browser.service_api("GET", "leases?mine=1&state=live"))["items"]:
            await browser.service_api("DELETE", f"leases/{lease['id']}", {"force": True})


def saved_mark(notebook: Path, number: int) -> Any:
    """Return the mark of a cell in the saved notebook; None while the server writes the file."""
    try:
        cells = json.loads(notebook.read_text())["cells"]
    except ValueError:
        return None
    return cells[number]["metadata"].get("gpulease")


async def message_of_admin(demo: RunningDemo, text: str) -> str:
    """Tell everybody something; return the message's id."""
    async with Browser(demo.url) as admin:
        await admin.log_in("admin", "admin")
        await admin.open_service()
        body = {"text": text, "seconds": 600}
        return str((await admin.service_api("POST", "messages", body))["id"])


async def take_back(demo: RunningDemo, message: str) -> None:
    async with Browser(demo.url) as admin:
        await admin.log_in("admin", "admin")
        await admin.open_service()
        await admin.service_api("DELETE", f"messages/{message}", {})
