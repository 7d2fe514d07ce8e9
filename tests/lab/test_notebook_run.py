"""A notebook executed in a kernel: parameters, output after every cell, and what ends it early."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager

from gpulease.errors import GPULeaseError
from gpulease.lab import notebook_run
from gpulease.lab.notebook_run import DeadKernelError, NotebookError, UnreadableError
from gpulease.lab.run_worker import RunWorker
from gpulease.protocol.names import ENV_CELL_OPTIONS
from tests.helpers import wait_for_async

pytestmark = pytest.mark.processes


def notebook(*cells: str, tagged: int | None = None) -> Any:
    found = nbformat.v4.new_notebook()
    found.cells = [nbformat.v4.new_code_cell(text) for text in cells]
    if tagged is not None:
        found.cells[tagged].metadata["tags"] = ["parameters"]
    return found


def shown(path: Path) -> list[str]:
    cells = nbformat.read(path, as_version=4).cells
    return ["".join(each.get("text", "") for each in cell.outputs) for cell in cells]


def test_parameters_come_after_the_cell_that_has_their_defaults():
    given = notebook("import os", "n = 1", "print(n)", tagged=1)
    notebook_run.set_parameters(given, {"n": 3, "name": "it's", "flag": True, "none": None})
    assert [cell.source for cell in given.cells] == [
        "import os", "n = 1", "# Parameters\nn = 3\nname = \"it's\"\nflag = True\nnone = None",
        "print(n)",
    ]  # fmt: skip
    notebook_run.set_parameters(given, {"n": 4})
    assert [cell.source for cell in given.cells][2] == "# Parameters\nn = 4", "those of before go"
    bare = notebook("print(n)")
    notebook_run.set_parameters(bare, {"n": 1})
    assert bare.cells[0].source == "# Parameters\nn = 1"
    nbformat.validate(bare)


def test_what_is_no_notebook_is_refused_with_its_name(tmp_path):
    (tmp_path / "a.ipynb").write_text("{")
    for name, why in (("a.ipynb", "it is no notebook"), ("b.ipynb", "There is no notebook")):
        with pytest.raises(UnreadableError, match=why):
            notebook_run.read(tmp_path / name)
    with pytest.raises(UnreadableError, match="cannot be written"):
        notebook_run.write(notebook(), tmp_path / "none" / "c.ipynb")


@pytest.fixture
async def kernel():
    manager = AsyncKernelManager(kernel_name="python3")
    await manager.start_kernel()
    yield manager
    if await manager.is_alive():
        await manager.shutdown_kernel(now=True)
    await manager.cleanup_resources()


async def test_output_is_written_after_every_cell_and_kept_when_one_fails(kernel, tmp_path):
    result, done = tmp_path / "out.ipynb", []

    def progress(number: int) -> None:
        done.append((number, shown(result)))

    given = notebook("print('a')", "", "print('b')", "1 / 0", "print('c')")
    client = await notebook_run.begin(given, kernel)
    with pytest.raises(NotebookError, match="Cell 3: ZeroDivisionError: division by zero"):
        await notebook_run.execute(client, result, progress)
    assert done == [(1, ["a\n", "", "", "", ""]), (2, ["a\n", "", "b\n", "", ""])]
    assert shown(result)[:3] == ["a\n", "", "b\n"]
    assert list(tmp_path.iterdir()) == [result]


async def test_a_kernel_that_dies_is_told_from_an_error_and_its_output_stays(kernel, tmp_path):
    result = tmp_path / "out.ipynb"
    given = notebook("print('a')", "import os\nos._exit(1)", "print('b')")
    client = await notebook_run.begin(given, kernel)
    with pytest.raises(DeadKernelError):
        await notebook_run.execute(client, result, lambda _: None)
    assert shown(result) == ["a\n", "", ""]


class Service:
    """What a worker needs of the client: refuses, is away, or takes what is told."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.told: list[dict[str, Any]] = []
        self.refusal: GPULeaseError | None = None

    async def call(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert (method, path) == ("POST", "runs/r1/reports")
        if self.refusal is not None:
            raise self.refusal
        self.told.append(body)
        return self.task


class Kernels(dict[str, Any]):
    """A server's kernels, as far as a worker needs them."""

    async def start_kernel(self, **how: Any) -> str:
        manager = AsyncKernelManager(kernel_name="python3")
        manager.stop_restarter = lambda: None
        await manager.start_kernel(cwd=how["cwd"])
        self["k1"] = manager
        return "k1"

    def get_kernel(self, kernel_id: str) -> Any:
        return self[kernel_id]

    async def shutdown_kernel(self, kernel_id: str, *, now: bool) -> None:
        manager = self.pop(kernel_id)
        await manager.shutdown_kernel(now=now)
        await manager.cleanup_resources()


@pytest.fixture
def service(tmp_path, monkeypatch):
    monkeypatch.setenv(ENV_CELL_OPTIONS, "")
    task = {
        "id": "r1", "notebook": "train.ipynb", "result": "train.run-r1.ipynb", "index": 7,
        "parameters": {"n": 2}, "attempt": 1, "gpu_class": "my class", "count": 2,
        "nodes": 1, "min_count": 1, "at_least": 40, "seconds": 90.0, "project": None,
    }  # fmt: skip
    nbformat.write(
        notebook(
            f"import os\nprint(n, array_index, os.environ['{ENV_CELL_OPTIONS}'])",
            "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)",
        ),
        tmp_path / "train.ipynb",
    )
    return Service(task)


@pytest.mark.parametrize(
    "refusal",
    [
        GPULeaseError("service_unreachable", "Away.", status=503),
        GPULeaseError("too_many_requests", "Too many.", status=429),
    ],
    ids=lambda refusal: refusal.reason,
)
async def test_a_worker_executes_what_the_service_says_while_the_service_takes_no_report(
    service, tmp_path, refusal
):
    kernels = Kernels()
    work = asyncio.create_task(RunWorker("r1", service, kernels, tmp_path).run())
    await wait_for_async(lambda: any(each["done"] == 2 for each in service.told), 60, "a cell")
    service.refusal = refusal
    (tmp_path / "go").touch()
    await wait_for_async(lambda: not kernels, 60, "the kernel is gone")
    assert not work.done()
    service.refusal = None
    await asyncio.wait_for(work, 60)
    last = service.told[-1]
    assert (last["state"], last["cells"], last["done"]) == ("succeeded", 3, 3)
    said = shown(tmp_path / "train.run-r1.ipynb")[1]
    assert (
        said
        == "2 7 '--class=my class' --count=2 --min-count=1 --at-least=40 --for=90s --wait 365d\n"
    )


async def test_a_worker_whose_run_was_cancelled_ends_its_kernel(service, tmp_path):
    kernels = Kernels()
    work = asyncio.create_task(RunWorker("r1", service, kernels, tmp_path, every=0.2).run())
    await wait_for_async(lambda: any(each["done"] == 2 for each in service.told), 60, "a cell")
    service.refusal = GPULeaseError("not_possible_now", "It was cancelled.", status=409)
    await asyncio.wait_for(work, 90)
    assert not kernels
    assert shown(tmp_path / "train.run-r1.ipynb")[1].startswith("2 7")


class Failing(Kernels):
    """A server whose first kernels end before they answer."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures, self.starts = failures, 0

    async def start_kernel(self, **how: Any) -> str:
        self.starts += 1
        if self.starts > self.failures:
            return await super().start_kernel(**how)
        manager = AsyncKernelManager(kernel_name="python3")
        manager.stop_restarter = lambda: None
        manager.kernel_spec.argv = [sys.executable, "-c", "raise SystemExit(1)"]
        await manager.start_kernel(cwd=how["cwd"])
        self["k1"] = manager
        return "k1"


@pytest.mark.parametrize(("failures", "state"), [(2, "succeeded"), (3, "kernel_died")])
async def test_a_kernel_that_does_not_start_is_started_again_and_at_last_given_up(
    service, tmp_path, failures, state
):
    """It counted as running for ever: nobody was told."""
    (tmp_path / "go").touch()
    kernels = Failing(failures)
    await asyncio.wait_for(RunWorker("r1", service, kernels, tmp_path).run(), 300)
    assert service.told[-1]["state"] == state
    assert ("did not start" in service.told[-1]["note"]) == (state == "kernel_died")
    assert (kernels.starts, len(kernels)) == (3, 0)


async def test_a_run_whose_server_cannot_go_on_is_over(service, tmp_path):
    class Broken(Kernels):
        async def start_kernel(self, **how: Any) -> str:
            raise OSError(28, "No space left on device")

    await asyncio.wait_for(RunWorker("r1", service, Broken(), tmp_path).run(), 60)
    assert service.told[-1]["state"] == "kernel_died"
    assert "OSError" in service.told[-1]["note"]
