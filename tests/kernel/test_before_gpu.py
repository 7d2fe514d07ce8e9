"""What cells set before anybody thought of a GPU holds in the first GPU cell."""

from pathlib import Path

from tests.kernel.parts import HomeKernel

SETS = """\
import decimal, os, sys, warnings
import numpy as np
import ownlib
np.set_printoptions(precision=2)
decimal.getcontext().prec = 5
os.environ["OWN"] = "1"
warnings.filterwarnings("ignore", message="own")
ownlib.rate = 3
ownlib.Model.size = 4"""
SHOWS = (
    "str(np.array([1 / 3])), decimal.getcontext().prec, os.environ.get('OWN'), "
    "warnings.filters[0][1].pattern, ownlib.rate, ownlib.Model.size"
)


def test_what_cells_set_before_the_first_companion_holds_on_the_gpu(
    fresh: HomeKernel, tmp_path: Path
) -> None:
    (tmp_path / "ownlib.py").write_text("rate = 1\nclass Model:\n    size = 2\n")
    fresh.run(f"%cd -q {tmp_path}")
    assert fresh.run("%load_ext gpulease").ok
    assert fresh.run(SETS).ok
    here = fresh.run(SHOWS)
    assert fresh.run("%gpu connect local").ok
    there = fresh.run(f"%%gpu\n{SHOWS}")
    assert there.result == here.result, there.traceback
