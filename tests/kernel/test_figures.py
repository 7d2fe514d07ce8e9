"""A figure is shown as a picture on a side that never made one."""

from pathlib import Path

import pytest

from tests.kernel.parts import HomeKernel

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("made", ["home", "gpu"])
def test_the_first_figure_that_a_side_shows(tmp_path: Path, made: str) -> None:
    kernel = HomeKernel(tmp_path)
    try:
        kernel.connect()
        here, there = ("", "%%gpu\n") if made == "home" else ("%%gpu\n", "")
        kernel.run(f"{here}import matplotlib.pyplot as plt\nf, axes = plt.subplots(); plt.close(f)")
        cell = kernel.run(f"{there}f")
        assert cell.ok, cell.traceback
        results = [m for m in cell.messages if m["msg_type"] == "execute_result"]
        assert "image/png" in results[0]["content"]["data"]
    finally:
        kernel.stop()
