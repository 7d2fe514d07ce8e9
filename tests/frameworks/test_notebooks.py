"""Notebooks of torch placed anywhere give, bit by bit, what they give in one process."""

import pytest

from tests.frameworks import notebooks, notebooks_torch
from tests.frameworks.placing import (
    check,
    each,
    patterns,
    with_the_gpu_gone_between_any_two_cells,
)
from tests.transfer.kinds import plain

NOTEBOOKS = {**notebooks.NOTEBOOKS, **notebooks_torch.NOTEBOOKS}

# Libraries warn of what they will drop; the notebooks use it all the same.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_placed_anywhere(name, eager, lazy):
    cells = NOTEBOOKS[name]
    check(cells, patterns(name, len(cells)), (eager, lazy, eager, lazy))


@pytest.mark.parametrize("killed", [False, True], ids=["returned", "killed"])
@pytest.mark.parametrize("name", each(NOTEBOOKS, quick=["training"]))
def test_the_gpu_is_gone_between_any_two_cells(name, killed, new_pair):
    """Everything is home by then, and the next companion gets all of it."""
    cells = NOTEBOOKS[name]
    seen = with_the_gpu_gone_between_any_two_cells(new_pair, cells, killed=killed)
    assert seen == plain(cells)
