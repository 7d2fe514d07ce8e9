"""Whole notebooks at a real hub: nobody is there, and the output is."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import nbformat
import pytest

from gpulease.demo.browse import Browser
from tests.browser.demo import RunningDemo
from tests.end_to_end.people import ENOUGH, LONG, WORK, at_work, server_of
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.site, pytest.mark.timeout(900)]

TRAIN = [
    "n = 1",
    "import os\nhome, kept = os.getpid(), list(range(n))",
    "%%gpu\nkept.append('gpu')\naway = os.getpid()",
    "print(kept, 'away' if away != home else 'here', os.environ['CUDA_VISIBLE_DEVICES'] == '')",
]
#: Waits in a cell until a file is there.
HOLD = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.1)"


def text_of(demo: RunningDemo, run: dict[str, Any]) -> str:
    """What the cells of a run's output show."""
    notebook = nbformat.read(demo.home(run["user"]) / run["result"], as_version=4)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "\n".join(each.get("text", "") or each.get("evalue", "") for each in shown)


async def submit(person: Browser, notebook: str, **more: Any) -> dict[str, Any]:
    return (await person.service_api("POST", "runs", {"notebook": notebook, **more}))["items"][0]


async def until(
    person: Browser, run: dict[str, Any], wanted: Callable[[dict[str, Any]], bool], what: str
) -> dict[str, Any]:
    """Look once a second: each look goes through proxy and service, and a run takes minutes."""

    async def there() -> Any:
        found = await person.service_api("GET", f"runs/{run['id']}")
        assert wanted(found) or found["state"] != "ended", found
        return found if wanted(found) else None

    return await wait_for_async(there, LONG, what, every=1.0)


def test_a_notebook_runs_without_anybody_whatever_becomes_of_its_server_and_its_gpu(
    demo: RunningDemo,
):
    """Its server is killed; then a person needs the GPU between two of its cells."""
    demo.time_outs(minimum_runtime=1, warning=2)
    demo.write_notebook("student2", "many.ipynb", [*TRAIN, HOLD, *WORK, "print(kept)"])
    notebook = demo.home("student2") / "many.ipynb"
    document = nbformat.read(notebook, as_version=4)
    document.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(document, notebook)

    async def test():
        async with Browser(demo.url) as other, at_work(demo, "student") as person:
            await other.log_in("student2", "student2")
            await other.open_service()
            run = await submit(other, "many.ipynb", parameters={"n": 2})
            never = await submit(other, "many.ipynb", after=[run["id"]])

            await until(other, run, lambda now: now["done"] == 5, "it waits in a cell")
            server = server_of(demo, "student2", run["server"])
            assert server is not None
            os.kill(server.pid, signal.SIGKILL)
            gone = await until(other, run, lambda now: now["state"] == "waiting", "it was killed")
            assert gone["reason"] == "server_gone"
            assert "[0, 1, 'gpu'] away True" in text_of(demo, run), "what it did can be read"

            (demo.home("student2") / "go").touch()
            await until(other, run, lambda now: now["done"] >= 8, "it has the GPU again")
            await person.run("%%gpu\nprint('mine')")
            waits = await until(other, run, lambda now: True, "it is there")
            assert (waits["state"], waits["attempt"]) == ("running", 2)
            assert waits["done"] < waits["cells"] - 1, "it finished before anybody asked"
            await other.service_api("DELETE", f"runs/{never['id']}", {})
            await person.return_gpu()
            (demo.home("student2") / ENOUGH).touch()

            done = await until(other, run, lambda now: now["state"] == "ended", "it ended")
            assert (done["outcome"], done["done"]) == ("succeeded", done["cells"]), done
            assert str([0, 1, "gpu", *range(len(WORK))]) in text_of(demo, run)

            async def tidy() -> bool:
                return not (await other.hub_api("GET", "users/student2"))["servers"]

            await wait_for_async(tidy, LONG, "the runs' servers are gone", every=0.5)

    asyncio.run(test())
