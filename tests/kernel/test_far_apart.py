"""Large values between two kernels as on two machines: by the second wire, or said to be slow."""

from pathlib import Path

import pytest

from tests.kernel.site import Site, connected

pytestmark = pytest.mark.processes

#: No shared memory is in reach.
FAR = """
from gpulease.wire import shortcut
def nowhere(): raise OSError("as on another machine")
shortcut.Listening = nowhere
"""
NO_CIPHER = "from gpulease.wire import seal\nseal.available = lambda: False"
#: Pieces that came home by the first wire.
COUNT = """
from gpulease.wire.pieces import Pulls
by_first, take = [], Pulls.piece
Pulls.piece = lambda self, *a: (by_first.append(1), take(self, *a))[1]
"""


def there_and_home(site: Site) -> int:
    """Carry 24 MiB both ways, whole; return the pieces that came home by the first wire."""
    made = site.kernel.run("import numpy as np\nx = np.random.default_rng(1).random(3 * 2**20)")
    assert made.ok, made.traceback
    assert site.gpu("total = float(x.sum()); y = x + 1; print(x.nbytes >> 20)") == "24\n"
    cell = site.kernel.run("assert total == x.sum() and (y == x + 1).all(); print(len(by_first))")
    assert cell.ok, cell.traceback
    return int(cell.text())


def test_a_large_value_takes_the_second_wire(tmp_path: Path) -> None:
    with connected(tmp_path, first=FAR + COUNT) as site:
        assert there_and_home(site) == 0
        assert "slowly" not in site.kernel.run("%gpu").text()


def test_without_the_cipher_it_is_slower_and_said(tmp_path: Path) -> None:
    with connected(tmp_path, first=FAR + COUNT + NO_CIPHER) as site:
        assert there_and_home(site) >= 24
        line = "Large values travel slowly: the package cryptography is not installed."
        assert line in site.kernel.run("%gpu").text()
