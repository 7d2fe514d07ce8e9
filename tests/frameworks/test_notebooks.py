"""Notebooks placed anywhere give, bit by bit, what they give in one process."""

import random
import sys

import pytest

from tests.frameworks.notebooks import NOTEBOOKS
from tests.transfer.kinds import empty, plain


def placed(pair, cells, where):
    """Run each cell beside the GPU where ``where`` says so; return what the notebook saw."""
    sys.modules["__main__"] = pair.main
    empty(pair)
    try:
        for source, beside_gpu in zip(cells, where, strict=True):
            (pair.gpu if beside_gpu else pair.home)(source)
        pair.home("seen")
    except BaseException:
        pair.restart()  # the next notebook of this pair is not to blame
        raise
    return pair.ns["seen"]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_placed_anywhere(name, eager, lazy):
    cells = NOTEBOOKS[name]
    expected = plain(cells)
    count = len(cells)
    rng = random.Random(name)
    for where, pair in (
        ([i % 2 == 0 for i in range(count)], eager),
        ([i % 2 == 1 for i in range(count)], lazy),
        ([rng.random() < 0.5 for _ in range(count)], eager),
        ([True] * count, lazy),
    ):
        assert placed(pair, cells, where) == expected, where


@pytest.mark.parametrize("killed", [False, True], ids=["returned", "killed"])
def test_the_gpu_is_gone_between_any_two_cells(killed, new_pair):
    """Everything is home by then, and the next companion gets all of it."""
    cells = NOTEBOOKS["training"]
    expected = plain(cells)
    pair = new_pair(settings={"reply_wait": 30})
    sys.modules["__main__"] = pair.main
    for source in cells:
        pair.attach()
        pair.gpu(source)
        assert pair.side.drain(60).done
        pair.side.disconnect(died=killed)
        (pair.companion.kill if killed else pair.companion.close)()
    pair.companion = None
    pair.home("seen")
    assert pair.ns["seen"] == expected
