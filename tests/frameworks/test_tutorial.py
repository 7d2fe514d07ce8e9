"""The tutorial's second notebook: the GPU is gone in the middle, and the numbers are the same."""

import sys
import types

import pytest

from gpulease.demo.hub import notebook_text
from gpulease.demo.notebook import code_cells, without_gpu
from gpulease.demo.options import TORCH_NOTEBOOK
from tests.transfer.companion_main import run

RESULT = "seen = (accuracy, [v.item() for v in losses], predictions.tolist(), float(torch.rand(1)))"


@pytest.fixture
def cells(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return code_cells(notebook_text(TORCH_NOTEBOOK))


@pytest.mark.filterwarnings("ignore")
def test_it_gives_what_a_plain_kernel_gives(cells, new_pair, monkeypatch):
    pair = new_pair()
    pair.attach()
    for cell in cells:
        if cell.after_reclaim:
            assert pair.side.drain(60).done
            pair.side.disconnect(died=False)
            pair.companion.close()
            pair.companion = None
        elif cell.on_gpu and pair.companion is None:
            pair.attach()
        (pair.gpu if cell.on_gpu else pair.home)(without_gpu(cell))
    pair.home(RESULT)

    plain = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", plain)
    for cell in cells:
        run(plain.__dict__, without_gpu(cell))
    run(plain.__dict__, RESULT)
    assert pair.ns["seen"] == plain.seen
    assert plain.accuracy > 0.9


def test_it_trains_beside_the_gpu_before_and_after_it_was_gone(cells):
    after = next(index for index, cell in enumerate(cells) if cell.after_reclaim)
    assert not cells[after].on_gpu
    assert any(cell.on_gpu for cell in cells[:after])
    assert any(cell.on_gpu for cell in cells[after:])
    assert any("plt.show" in cell.source and not cell.on_gpu for cell in cells)
