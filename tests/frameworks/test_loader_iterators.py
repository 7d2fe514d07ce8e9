"""An iterator of a DataLoader stays where it was made, and what it reads travels all the same."""

import pytest

from gpulease.errors import GPULeaseError

# JAX, which another test of this process may have imported, warns of each fork of a worker.
pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

MAKE = """
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
class Squares(Dataset):
    def __init__(self, n):
        self.x = torch.arange(float(n)); self.log = []; self.add = 0
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        self.log.append(i)
        return self.x[i] ** 2 + self.add
squares = Squares(6); loader = DataLoader(squares, batch_size=2, num_workers=WORKERS)
pairs = TensorDataset(torch.ones(4, 2), torch.arange(4)); shuffled = DataLoader(pairs, 2, True)
"""


def on_both(pair, workers, side, other):
    """Make an iterator on one side, and use all that it reads on the other."""
    make = MAKE.replace("WORKERS", str(workers))
    side(make + "it = iter(loader); again = iter(shuffled); first = next(it).tolist(); next(again)")
    other("assert first == [0.0, 1.0] and loader.dataset is squares and shuffled.dataset is pairs")
    other("assert [b.tolist() for b in loader] == [[0, 1], [4, 9], [16, 25]]\nsquares.add = 1")
    other("assert len(list(shuffled)) == 2\nsquares.x[5] = 10; pairs.tensors[1].add_(10)")
    side("assert loader.dataset is squares and shuffled.dataset is pairs and squares.add == 1")
    side("assert squares.x[5] == 10 and pairs.tensors[1].tolist() == [10, 11, 12, 13]")


@pytest.mark.parametrize("workers", [0, 1])
def test_made_on_the_gpu(pair, workers):
    on_both(pair, workers, pair.gpu, pair.home)
    pair.gpu("next(again)")
    if not workers:  # a worker has the dataset that it began with
        pair.gpu(
            "assert next(it).tolist() == [5, 10] and next(it)[1] == 101 and it._dataset is squares"
        )
    pair.home("assert squares.add == 1")


@pytest.mark.parametrize("workers", [0, 1])
def test_made_at_home(pair, workers):
    on_both(pair, workers, pair.home, pair.gpu)
    pair.home("next(again)")
    if not workers:
        pair.home("assert next(it).tolist() == [5, 10] and it._dataset is squares")


def test_next_on_the_other_side_says_what_it_is(pair):
    pair.gpu(MAKE.replace("WORKERS", "0") + "it = iter(loader); next(it)")
    with pytest.raises(GPULeaseError, match=r"it cannot travel .*an iterator of a DataLoader"):
        pair.home("next(it)")
    pair.gpu("assert next(it).tolist() == [4, 9]")


def test_a_generator_shares_what_holds_tensors(pair):
    """Its instance keeps its identity, and the tensor in it its memory."""
    pair.gpu(MAKE.replace("WORKERS", "0") + "gen = (squares[i] for i in range(6)); next(gen)")
    pair.home("squares.x[1] = 7; squares.add = 1")
    pair.gpu("assert next(gen) == 50 and squares.log == [0, 1]\nsquares.x.mul_(2)")
    pair.home("assert squares.x[1] == 14")


def test_an_array_under_a_tensor_that_a_generator_reads(pair):
    """Its memory comes with the tensor's, and not by itself as well."""
    pair.home("import numpy as np, torch")
    pair.gpu("a = np.arange(10.); t = torch.from_numpy(a[2:6]); box = [a, t]")
    pair.gpu("gen = (b[2] for b in box); hold = [gen]")
    pair.home("t += 1; assert_ = a.tolist()\nassert assert_[:4] == [0, 1, 3, 4]")
    pair.gpu("assert a[2] == 3 == t[0] and box[0] is a")
    pair.gpu("a[3] = 9")
    pair.home("assert t[1] == 9 and a[3] == 9")


@pytest.mark.parametrize("side", ["home", "gpu"])
def test_it_reads_a_part_that_no_name_has(pair, side):
    """The memory is the one that a name shows."""
    here, there = (pair.home, pair.gpu)[:: 1 if side == "home" else -1]
    here("import torch; from torch.utils.data import DataLoader, TensorDataset\nseen = 0")
    here("data = torch.arange(20.); it = iter(DataLoader(TensorDataset(data[:10]), 2)); next(it)")
    there("seen = data.sum().item(); data[2:6].mul_(10)")
    here("assert seen == 190 and next(it)[0].tolist() == [20, 30]\ndata.add_(1)")
    there("assert data[4] == 41; data = data.clone(); data.zero_()")
    here("assert next(it)[0].tolist() == [41, 51] and data.sum() == 0")


@pytest.mark.parametrize("side", ["home", "gpu"])
def test_a_generator_of_batches(pair, side):
    here, there = (pair.home, pair.gpu)[:: 1 if side == "home" else -1]
    here(
        "import torch\nx = torch.arange(40.).reshape(20, 2); train, test = x[:16], x[16:]\n"
        "def batches(rows, n):\n    for i in range(0, len(rows), n): yield rows[i : i + n]"
    )
    here("gen = batches(train, 4); batch = next(gen)")
    there("batch.mul_(2); total = x.sum()")
    here("assert total == x.sum() == 808 and batch[0, 1] == 2\nbatch = next(gen)")
    there("x.add_(1); total = batch.sum()")
    here("assert total == 100 == batch.sum() and next(gen)[0, 0] == 17 and test[0, 0] == 33")


@pytest.mark.parametrize("side", ["home", "gpu"])
def test_an_array_and_a_tensor_over_one_memory(pair, side):
    here, there = (pair.home, pair.gpu)[:: 1 if side == "home" else -1]
    here("import numpy as np, torch\na = np.arange(20.); t = torch.from_numpy(a)")
    here("gen = zip((x for x in a[:10]), range(9)); hold = [(x for x in t[3:])]; next(hold[0])")
    there("t.mul_(2); a[5] = 1")
    here("assert [x for x, _ in gen] == [0, 2, 4, 6, 8, 1, 12, 14, 16] and next(hold[0]) == 8")
