"""A large tensor of which little changed: its chunks travel, into the memory that is there."""

import numpy as np
import pytest

from gpulease.transfer import pieces
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


def test_large_memory_is_not_copied_to_be_sent():
    notebook = {}
    exec("import torch; big = torch.zeros(2**23)", notebook)
    parcel = Side("h", notebook, {"__builtins__"}).pack()
    (found,) = [each for each in parcel.components if "big" in each.names]
    ((_, size, runs),) = found.memories
    assert (size, runs) == (4 * 2**23, ((0, 4 * 2**23 // PIECE),))
    own, (memory,) = found.own_buffers()
    assert not own
    notebook["big"][5] = 1
    assert memory.raw()[20:24] == np.float32(1).tobytes()


def test_a_large_tensor_is_received_into_its_own_memory(new_halves):
    """The home kernel does not hold it twice, and the tensor that arrives can be resized."""
    pair = new_halves()
    pair.attach()
    pair.gpu("import torch\nbig = torch.arange(8 * 2**20, dtype=torch.float32)\nview = big[5:]")
    received, place = [], pieces._place
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_place", lambda *said: received.append(place(*said)) or received[-1])
        pair.home("total = big.sum().item()")
    (memory,) = [each for each in received if not isinstance(each, bytearray)]
    assert memory._gpulease_keep.data_ptr() == pair.ns["view"].untyped_storage().data_ptr()
    pair.home("big[5] = -1; big.resize_(9 * 2**20); big[-1] = 7")
    pair.gpu("seen = view[0].item(), big[-1].item()")
    pair.home("seen")
    assert pair.ns["seen"] == (-1, 7)
