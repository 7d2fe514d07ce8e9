"""The same of what is built on torch, of JAX and its kin, and of other libraries."""

import pytest

from tests.frameworks import notebooks_kin, notebooks_others
from tests.frameworks.placing import (
    check,
    each,
    patterns,
    with_the_gpu_gone_between_any_two_cells,
)
from tests.transfer.kinds import plain

_ALL = {**notebooks_kin.NOTEBOOKS, **notebooks_others.NOTEBOOKS}
#: JAX's registers keep every class that this process entered, and a jitted function leads to them:
#: after other notebooks equinox's would be refused for what they left there.  So it is the first.
NOTEBOOKS = {name: _ALL[name] for name in sorted(_ALL, key=lambda name: name != "equinox")}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_in_turns(name, eager, lazy):
    """Each side compiles anew what a notebook gives it, so the other patterns run at night."""
    cells = NOTEBOOKS[name]
    where = patterns(name, len(cells))
    turns = {label: where[label] for label in list(where)[:2]}
    check(cells, turns, (eager, lazy))


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
