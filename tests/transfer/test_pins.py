"""Which objects keep their identity on the other side: what something outside holds, no more."""

import sys
import types

import pytest

from gpulease.transfer.switch.planning import Wanted, plan
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import TransferSettings

ARRAY = "import numpy as np\nx = np.zeros(2**20)"


@pytest.fixture
def side(monkeypatch):
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return Side("h", main.__dict__, set(main.__dict__), TransferSettings())


def pinned(side):
    """Return how many objects of x's group travel with an id."""
    shipment = plan(side, Wanted(strict=frozenset({"x"})))
    (item,) = [item for item in shipment.items if "n:x" in item.packed.roots]
    return len(item.packed.skeletons)


@pytest.mark.parametrize(
    "source",
    [
        ARRAY,
        "import numpy as np\nx = {'a': np.zeros(2**20), 'b': [np.ones(2**20)]}",
        "import pandas as pd, numpy as np\nx = pd.DataFrame(np.zeros((2**17, 8)))",
    ],
)
def test_what_nobody_else_holds_needs_no_second_copy(side, source):
    """A pinned array is packed and hashed twice, and copied once more where it arrives."""
    exec(source, side.ns)
    assert pinned(side) == 0


def test_what_somebody_else_holds_is_pinned(side):
    exec(ARRAY, side.ns)
    holder = [side.ns["x"]]
    assert pinned(side) == 1
    del holder


def test_what_came_in_a_message_is_pinned_as_long_as_its_memory_is_no_others(side):
    """A large array is loaded over the very bytes that came."""
    side.ns["come"] = bytearray(2**22)
    exec("import numpy as np\nx = np.ndarray(2**22, 'u1', come)", side.ns)
    holder = [side.ns["x"]]
    assert pinned(side) == 0, "come is another name of its memory"
    del side.ns["come"]
    assert pinned(side) == 1
    del holder
