"""A large tensor of which little changed: its chunks travel, into the memory that is there."""

from gpulease.transfer.frameworks.torch import loading

MIB = 2**20


def test_a_row_of_a_large_tensor_costs_its_chunks(new_pair):
    pair = new_pair(settings={"reply_wait": 30})
    pair.attach()
    pair.home(
        "import torch\n"
        "big = torch.arange(8 * 2**20, dtype=torch.float32).reshape(1024, -1)\n"
        "model = torch.nn.Linear(2048, 2048)\n"
        "row, ids = big[3], (id(big), big.data_ptr(), id(model.weight))"
    )
    pair.gpu("big[3, 3] = -1\nwith torch.no_grad(): model.weight[5] += 1\ntold = big.sum().item()")
    pair.home("seen = big.sum().item(), row[3].item(), model.weight[5].sum().item()")
    assert pair.last.bytes < 8 * MIB
    assert pair.ns["seen"][:2] == (pair.ns["told"], -1)
    pair.home("assert ids == (id(big), big.data_ptr(), id(model.weight))")
    pair.home("big[1000, 0] = 7\nhere = big.sum().item(), model.weight.sum().item()")
    pair.gpu("there = big.sum().item(), model.weight.sum().item()")
    assert pair.last.bytes < 8 * MIB
    pair.home("there")
    assert pair.ns["here"] == pair.ns["there"]


def test_what_arrived_is_put_in_place_without_another_copy():
    arrived = memoryview(bytearray(range(8)))
    taken = loading._bytes_tensor(arrived)
    arrived[0] = 9
    assert taken.tolist() == [9, *range(1, 8)]
    assert loading._bytes_tensor(bytes(3)).tolist() == [0, 0, 0]
