"""The same of what is built on torch, of JAX and its kin, and of other libraries."""

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer.side import Side
from tests.frameworks import notebooks_kin, notebooks_others
from tests.frameworks.placing import (
    check,
    each,
    patterns,
    placed,
    with_the_gpu_gone_between_any_two_cells,
)
from tests.transfer.kinds import plain
from tests.transfer.pair import CellError

EVERY = notebooks_kin.NOTEBOOKS | notebooks_others.NOTEBOOKS
#: What these libraries do not pickle stays, and the cell that needs it says so.
REFUSED = {
    "numba": "cannot be packed",
    "wrapt": "cannot be packed .*object proxy",
    "spacy": "a pipeline of spaCy",
    "keras": "an object of Keras",
    "keras classes": "an object of Keras",
}
NOTEBOOKS = {name: cells for name, cells in EVERY.items() if name not in REFUSED}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_in_turns(name, eager, lazy):
    """Each side compiles again what a notebook gives it, so the other patterns run at night."""
    cells = NOTEBOOKS[name]
    where = patterns(name, len(cells))
    turns = {label: where[label] for label in list(where)[:2]}
    check(cells, turns, (eager, lazy))


@pytest.mark.parametrize("name", REFUSED)
def test_a_notebook_that_cannot_go_on_says_why(name, lazy):
    cells = EVERY[name]
    turns = next(iter(patterns(name, len(cells)).values()))
    with pytest.raises((GPULeaseError, CellError), match=REFUSED[name]):
        placed(lazy, cells, turns)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_placed_anywhere(name, eager, lazy):
    cells = NOTEBOOKS[name]
    check(cells, patterns(name, len(cells)), (lazy, eager, lazy, eager))


@pytest.mark.parametrize("killed", [False, True], ids=["returned", "killed"])
@pytest.mark.parametrize("name", each(NOTEBOOKS, quick=["networkx", "polars"]))
def test_the_gpu_is_gone_between_any_two_cells(name, killed, new_pair):
    cells = NOTEBOOKS[name]
    seen = with_the_gpu_gone_between_any_two_cells(new_pair, cells, killed=killed)
    assert seen == plain(cells)


ANOTHERS = """import jax, threading
seen = []
def enter():
    held = seen, threading.Lock()
    class Node: pass
    jax.tree_util.register_pytree_node(Node, lambda node: ((), held), lambda aux, parts: Node())
enter()
add = jax.jit(lambda x: x + 1); shape = jax.tree.structure([1, {'a': 2}])"""


def test_a_jitted_function_does_not_lead_to_every_class_that_jax_knows(eager):
    """JAX's registers are the process's: another notebook's classes are in them, too."""
    try:
        cells = [ANOTHERS, "seen.append((add(1).item(), str(shape)))"]
        assert placed(eager, cells, [False, True]) == [(2, "PyTreeDef([*, {'a': *}])")]
    finally:
        eager.restart()  # no other companion knows the class


def test_a_class_in_jaxs_trees_is_in_those_of_a_side_that_had_not_imported_jax(new_pair):
    pair = new_pair()
    pair.attach()
    pair.gpu("import sys; there = 'jax' in sys.modules")
    pair.home(
        "import jax\nclass Pair:\n    def __init__(self, *v): self.v = v\np = Pair(1.0, 2.0)\n"
        "jax.tree_util.register_pytree_node(Pair, lambda p: (p.v, 0), lambda _, v: Pair(*v))"
    )
    pair.gpu("import jax; leaves = jax.tree.leaves({'p': p})")
    pair.home("leaves")
    assert (pair.ns["there"], pair.ns["leaves"]) == (False, [1.0, 2.0])


APART = {
    "jitted": "import jax\na, b = jax.jit(lambda x: x + 1), jax.jit(lambda x: x * 2)\na(1), b(1)",
    "flax": """import flax.linen as nn
class A(nn.Module):
    n: int = 1
class B(nn.Module):
    n: int = 2
a, b = A(), B()""",
    "dtypes of torch": (
        "import torch\na, b = [torch.float32, torch.device('cpu')], [torch.float32, torch.strided]"
    ),
    "dtypes of polars": "import polars as pl\na, b = [pl.Int64], [pl.Int64, pl.List(pl.Int64)]",
}


@pytest.mark.parametrize("kind", APART)
def test_what_is_imported_joins_nothing(kind):
    space = {"__name__": "__main__", "__builtins__": __builtins__}
    side = Side("h", space, hidden=set(space))
    exec(APART[kind], space)
    packed = {name: each for each in side.pack().components for name in each.names}
    assert packed["a"] is not packed["b"]


def test_the_memory_of_a_column_of_text_is_held_by_its_frame_alone():
    space = {"__name__": "__main__", "__builtins__": __builtins__}
    side = Side("h", space, hidden=set(space))
    exec("import pandas as pd, pyarrow\ndf = pd.DataFrame({'g': list('abcd')})", space)
    assert side.pack().pins == frozenset()


def test_what_jax_keeps_of_a_class_sees_a_part_of_it_that_something_holds(eager):
    """The part is known by an id then, and is filled on its own."""
    cells = [
        "import jax, dataclasses\n@dataclasses.dataclass\nclass D:\n    a: object\n    n: int\n"
        "D = jax.tree_util.register_dataclass(D, data_fields=['a'], meta_fields=['n']); seen = []",
        "seen.append(len(jax.tree.leaves(D([1, 2], 3))))",
    ]
    assert placed(eager, cells, [True, False]) == [2]
