"""The same of what is built on torch, of JAX and its kin, and of other libraries."""

import os
import subprocess
import sys

import pytest

from tests.frameworks import notebooks_kin, notebooks_others
from tests.frameworks.placing import (
    check,
    each,
    patterns,
    with_the_gpu_gone_between_any_two_cells,
)
from tests.transfer.kinds import plain

#: JAX's registers keep every class that a process entered, and a jitted function leads to them: of
#: equinox's notebook and the others each would be refused for what the other left there.
ALONE = "GPULEASE_TEST_ALONE"
_ALL = {**notebooks_kin.NOTEBOOKS, **notebooks_others.NOTEBOOKS}
NOTEBOOKS = {
    name: cells for name, cells in _ALL.items() if (name == "equinox") == (ALONE in os.environ)
}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_in_turns(name, eager, lazy):
    """Each side compiles anew what a notebook gives it, so the other patterns run at night."""
    cells = NOTEBOOKS[name]
    where = patterns(name, len(cells))
    turns = {label: where[label] for label in list(where)[:2]}
    check(cells, turns, (eager, lazy))


@pytest.mark.skipif(ALONE in os.environ, reason="it is this test that runs")
@pytest.mark.timeout(600)
def test_equinox_in_a_process_of_its_own():
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "frameworks", __file__]
    done = subprocess.run(
        [*command, "-k", "in_turns"], env=os.environ | {ALONE: "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_placed_anywhere(name, eager, lazy):
    cells = NOTEBOOKS[name]
    check(cells, patterns(name, len(cells)), (lazy, eager, lazy, eager))


@pytest.mark.parametrize("killed", [False, True], ids=["returned", "killed"])
@pytest.mark.parametrize("name", each(NOTEBOOKS, quick=["networkx"]))
def test_the_gpu_is_gone_between_any_two_cells(name, killed, new_pair):
    cells = NOTEBOOKS[name]
    seen = with_the_gpu_gone_between_any_two_cells(new_pair, cells, killed=killed)
    assert seen == plain(cells)
