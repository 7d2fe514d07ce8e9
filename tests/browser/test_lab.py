"""The GPU in JupyterLab itself: the extension in a real Lab, hub, service, kernels and Chromium."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.demo import RunningDemo, running_demo
from tests.browser.test_round import LONG, Lab, log_in

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

NOTEBOOK = "lab.ipynb"
CELLS = [
    "import os\nhome = os.getpid()\nvalues = [1, 2]",
    "%%gpu\nvalues.append(3)\nprint('away', os.getpid() != home)",
]
STATUS = ".gpulease-status-item"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    directory = tmp_path_factory.mktemp("demo")
    options = ("--gpus", "1", "--idle", "600", "--warning", "60", "--warm-up", "1")
    with running_demo(directory, *options) as found:
        yield found


def opened(demo: RunningDemo, page: Any, user: str) -> Lab:
    """Log in, start the server, and open the notebook in Lab."""
    demo.write_notebook(user, NOTEBOOK, CELLS)
    log_in(demo, page, user)
    page.goto(f"{demo.url}hub/spawn/{user}", timeout=LONG)
    page.wait_for_url(f"**/user/{user}/lab**", timeout=LONG)
    return Lab(page, f"{demo.url}user/{user}/lab/tree/{NOTEBOOK}")


def test_the_status_bar_follows_the_lease(demo: RunningDemo, profile: Any) -> None:
    page = profile.new_page()
    lab = opened(demo, page, "student")
    page.wait_for_selector(f"{STATUS} >> text=1 of 1 available")
    lab.run(0)
    assert "away True" in lab.run(1)
    page.wait_for_selector(f"{STATUS}.gpulease-good >> text=left")
