"""A large tensor of which little changed: its chunks travel, into the memory that is there."""

from gpulease.transfer.pieces import PIECE
from gpulease.transfer.side import Side


def test_a_row_of_a_large_tensor_costs_its_chunks(new_halves):
    pair = new_halves()
    pair.attach()
    pair.home(
        "import torch\n"
        "big = torch.arange(8 * 2**20, dtype=torch.float32).reshape(1024, -1)\n"
        "model = torch.nn.Linear(2048, 2048)\n"
        "row, ids = big[3], (id(big), big.data_ptr(), id(model.weight))"
    )
    pair.gpu("big[3, 3] = -1\nwith torch.no_grad(): model.weight[5] += 1\ntold = big.sum().item()")
    pair.home("seen = big.sum().item(), row[3].item(), model.weight[5].sum().item()")
    assert pair.last.bytes < 3 * PIECE, "of 48 MiB"
    assert pair.ns["seen"][:2] == (pair.ns["told"], -1)
    pair.home("assert ids == (id(big), big.data_ptr(), id(model.weight))")
    pair.home("big[1000, 0] = 7\nhere = big.sum().item(), model.weight.sum().item()")
    pair.gpu("there = big.sum().item(), model.weight.sum().item()")
    assert pair.last.bytes < 3 * PIECE, "of 48 MiB"
    pair.home("there")
    assert pair.ns["here"] == pair.ns["there"]


def test_large_memory_is_looked_at_and_sent_in_pieces():
    """A copy of a model that fills the device would fill the machine's memory at each look."""
    notebook = {}
    exec("import torch; big = torch.zeros(2**23)", notebook)
    parcel = Side("h", notebook, {"__builtins__"}).pack()
    (found,) = [each for each in parcel.components if "big" in each.names]
    ((_, size, numbers),) = found.memories
    assert (size, len(numbers)) == (4 * 2**23, 4 * 2**23 // PIECE)
    own, pieces = found.own_buffers()
    assert not own
    assert {memoryview(each.raw()).nbytes for each in pieces} == {PIECE}
