"""``%gpu submit`` as it is typed in a notebook: what is asked for, said and refused."""

import json
from pathlib import Path

import pytest

from tests.kernel.parts import HomeKernel
from tests.kernel.stage import Stage

pytestmark = pytest.mark.processes


@pytest.fixture
def kernel(kernel_on_bus: HomeKernel) -> HomeKernel:
    """A kernel in a directory with two notebooks."""
    cell = {"cell_type": "code", "source": "epochs = 1", "metadata": {"tags": ["parameters"]}}
    for name in ("train.ipynb", "mein Heft.ipynb"):
        (kernel_on_bus.directory / name).write_text(json.dumps({"cells": [cell]}))
    return kernel_on_bus


def submitted(stage: Stage) -> dict[str, object]:
    return next(args for name, args in reversed(stage.calls) if name == "submit")


def test_a_notebook_is_submitted_with_what_was_typed(stage: Stage, kernel: HomeKernel) -> None:
    cell = kernel.run("n = 3\n%gpu submit train.ipynb -p epochs={n} -p name='a b' --for 10m")
    assert cell.ok, cell.traceback
    assert cell.text().strip() == (
        "Submitted: run run1. Its output will be beside the notebook, in train.run-x.ipynb."
        " 1.25 of 4 GPU-hours of its budget left."
    )
    wanted = submitted(stage)
    assert Path(str(wanted["notebook"])).name == "train.ipynb"
    assert wanted["parameters"] == {"epochs": 3, "name": "a b"}
    assert (wanted["seconds"], wanted["on_loss"], wanted["count"]) == (600.0, "fail", None)


def test_a_name_with_a_blank_and_an_array(stage: Stage, kernel: HomeKernel) -> None:
    cell = kernel.run("%gpu submit 'mein Heft.ipynb' --array 1-2 --on-loss restart --after r0")
    assert cell.ok, cell.traceback
    assert "2 runs, array many." in cell.text()
    wanted = submitted(stage)
    assert (wanted["array"], wanted["on_loss"], wanted["after"]) == ("1-2", "restart", ["r0"])


def test_help_is_that_of_the_command(stage: Stage, kernel: HomeKernel) -> None:
    cell = kernel.run("%gpu submit train.ipynb --help")
    assert cell.text().startswith("%gpu submit NOTEBOOK [--class NAME]")
    assert not any(name == "submit" for name, _ in stage.calls)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("submit", "the following arguments are required: NOTEBOOK. Usage: %gpu submit NOTEBOOK"),
        ("submit gone.ipynb", "There is no notebook"),
        ("submit train.ipynb -p epochs", "'epochs' is no parameter. Write -p name=value"),
        ("submit train.ipynb -p a=1 -p a=2", "a is given twice"),
        ("submit train.ipynb --wait", "unrecognized arguments: --wait"),
        ("submit train.ipynb --array 9-1", "'9-1' is no list"),
        ("submt train.ipynb", "Did you mean %gpu submit?"),
    ],
)
def test_a_slip_is_refused_with_what_to_type(
    stage: Stage, kernel: HomeKernel, typed: str, said: str
) -> None:
    cell = kernel.run(f"%gpu {typed}")
    assert not cell.ok
    assert said in cell.error
    assert not any(name == "submit" for name, _ in stage.calls)
