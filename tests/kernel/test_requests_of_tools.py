"""Requests that no person typed: a variables pane's, a debugger's, an extension's."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import wait_for
from tests.kernel.parts import HomeKernel
from tests.kernel.stage import Stage

PID = "__import__('os').getpid()"
#: Ways to ask without typing: with output, without, and beside a cell.
WAYS: list[dict[str, bool]] = [{"by_tool": True}, {"silent": True}]


@pytest.fixture
def connected(kernel_on_bus: HomeKernel) -> Iterator[HomeKernel]:
    """A kernel with a companion of its own, on a bus that a test can read."""
    assert kernel_on_bus.run("%gpu connect local").ok
    yield kernel_on_bus
    kernel_on_bus.run("%gpu off")
    kernel_on_bus.run("%gpu return --force")


def answer(kernel: HomeKernel, code: str, **way: bool) -> str:
    """What a tool's request computes, also of one that shows nothing."""
    cell = kernel.run(f"_answer = {code}", expressions={"it": "_answer"}, **way)
    assert cell.ok, cell.traceback
    return str(cell.reply["user_expressions"]["it"]["data"]["text/plain"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("which", ["on", "auto"])
def test_a_tools_request_runs_in_the_notebook_and_asks_for_nothing(
    kernel_on_bus: HomeKernel, stage: Stage, tmp_path: Path, way: dict[str, bool], which: str
) -> None:
    Path(kernel_on_bus.directory, "torch.py").write_text("def rand(n): return n\n")
    assert kernel_on_bus.run(f"%gpu {which}").ok
    ended = ("cell", {"busy": False})
    wait_for(lambda: ended in stage.calls, what="the word that this cell ended")
    stage.calls.clear()
    assert answer(kernel_on_bus, PID, **way) == str(kernel_on_bus.pid)
    imported = kernel_on_bus.run("import torch\nv = torch.rand(3)", **way)
    assert (imported.ok, imported.shown()) == (True, "")
    assert answer(kernel_on_bus, "await __import__('asyncio').sleep(0, 5)", **way) == "5"
    assert not stage.calls, "no request for a GPU, and no word of a cell"
    kernel_on_bus.run("%gpu off")


@pytest.mark.parametrize("way", WAYS)
def test_an_explicit_gpu_cell_of_a_tool_is_obeyed(
    connected: HomeKernel, way: dict[str, bool]
) -> None:
    before = connected.run("1").reply["execution_count"]
    cell = connected.run(f"%%gpu\nfound = {PID}", **way)
    assert cell.ok, cell.traceback
    assert connected.run("found").result != str(connected.pid)
    cell = connected.run("%%gpu\nIn[-2]")
    assert cell.result == "'found'", "and it has no place in the history of either side"
    assert cell.reply["execution_count"] == before + 2


def test_a_tools_request_leaves_the_notices_to_the_persons_next_cell(
    connected: HomeKernel,
) -> None:
    companion = int(connected.run(f"%%gpu\nmade = [1] * 1000\n{PID}").result or "")
    connected.run("%gpu on")
    connected.run("%gpu off")
    os.kill(companion, signal.SIGKILL)
    for way in WAYS:
        cell = connected.run("x = 1", **way)
        assert "died" not in cell.shown() + cell.text() + cell.error
    said = wait_for(lambda: connected.run("1").shown(), what="the notice under a person's cell")
    assert "died" in str(said)


def test_expressions_of_a_request_pass_the_gate(home: HomeKernel) -> None:
    home.run("kept = [1]")
    home.run("%%gpu\nmade = sum(kept)")
    home.run("%%gpu\nsum(kept)", expressions={"grown": "kept.append(2)"})
    assert home.run("%%gpu\nsum(kept)").result == "3", "what one changed is not lost"
    asked = {"it": "made", "bad": "1 / 0"}
    cell = home.run("%%gpu\nmade = [0] * 4", expressions=asked)
    found: dict[str, Any] = cell.reply["user_expressions"]
    assert found["it"]["data"]["text/plain"] == "[0, 0, 0, 0]"
    assert (found["bad"]["status"], found["bad"]["ename"]) == ("error", "ZeroDivisionError")
