"""Whole notebooks at a real hub: nobody is there, and the output is."""

import asyncio
import os
import signal
from typing import Any

import nbformat
import pytest

from gpulease.demo.browse import Browser
from tests.browser.demo import RunningDemo
from tests.end_to_end.people import LONG, at_work, server_of
from tests.helpers import wait_for_async

pytestmark = pytest.mark.timeout(900)

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


async def until(person: Browser, run: dict[str, Any], *states: str) -> dict[str, Any]:
    async def there() -> Any:
        found = await person.service_api("GET", f"runs/{run['id']}")
        return found if found["state"] in states and found["reason"] != "starting" else None

    return await wait_for_async(there, LONG, f"the run is {states}", every=0.2)


def test_notebooks_run_without_anybody_and_go_on_after_a_killed_server(demo: RunningDemo):
    demo.write_notebook("student", "train.ipynb", TRAIN)
    demo.write_notebook("student", "wrong.ipynb", ["print('before')", "1 / 0", "print('after')"])
    demo.write_notebook("student2", "long.ipynb", ["kept = 1", HOLD, "print('whole')"])
    notebook = demo.home("student") / "train.ipynb"
    document = nbformat.read(notebook, as_version=4)
    document.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(document, notebook)

    async def test():
        async with Browser(demo.url) as student, Browser(demo.url) as other:
            for person, name in ((student, "student"), (other, "student2")):
                await person.log_in(name, name)
                await person.open_service()
            train = await submit(student, "train.ipynb", parameters={"n": 2})
            wrong = await submit(student, "wrong.ipynb")
            never = await submit(student, "train.ipynb", after=[wrong["id"]])
            long = await submit(other, "long.ipynb")

            await until(other, long, "running")
            first = server_of(demo, "student2", long["server"])
            assert first is not None
            os.kill(first.pid, signal.SIGKILL)
            assert (await until(other, long, "waiting"))["reason"] == "server_gone"

            done = await until(student, train, "ended")
            assert (done["outcome"], done["done"], done["attempt"]) == ("succeeded", 5, 1), done
            assert "[0, 1, 'gpu'] away True" in text_of(demo, train)
            bad = await until(student, wrong, "ended")
            assert bad["outcome"] == "failed"
            assert "Cell 2: ZeroDivisionError" in bad["sentence"]
            assert "before" in text_of(demo, wrong)
            assert (await until(student, never, "ended"))["outcome"] == "skipped"

            (demo.home("student2") / "go").touch()
            again = await until(other, long, "ended")
            assert (again["outcome"], again["attempt"]) == ("succeeded", 2), again
            assert "whole" in text_of(demo, long)

            async def tidy() -> bool:
                users = [
                    await each.hub_api("GET", f"users/{each.user}") for each in (student, other)
                ]
                return not any(user["servers"] for user in users)

            await wait_for_async(tidy, LONG, "the runs' servers are gone")

    asyncio.run(test())


def test_a_run_gives_its_gpu_to_a_person_between_two_cells_and_goes_on_with_its_variables(
    demo: RunningDemo,
):
    demo.time_outs(minimum_runtime=1, warning=2)
    work = [f"%%gpu\nimport time\ntime.sleep(2)\nkept.append({number})" for number in range(12)]
    demo.write_notebook("student2", "many.ipynb", ["kept = []", *work, "print(kept)"])

    async def test():
        async with Browser(demo.url) as other, at_work(demo, "student") as person:
            await other.log_in("student2", "student2")
            await other.open_service()
            run = await submit(other, "many.ipynb")

            async def works() -> bool:
                return (await other.service_api("GET", f"runs/{run['id']}"))["done"] >= 2

            await wait_for_async(works, LONG, "the run holds the GPU", every=0.2)
            await person.run("%%gpu\nprint('mine')")
            waits = await other.service_api("GET", f"runs/{run['id']}")
            assert waits["state"] == "running"
            assert waits["done"] < 13, "it finished before anybody asked"
            await person.return_gpu()
            done = await until(other, run, "ended")
            assert (done["outcome"], done["attempt"]) == ("succeeded", 1), done
            assert str(list(range(12))) in text_of(demo, run)

    asyncio.run(test())
