"""A deletion is told to the other side, whatever both sides know of each other's values."""

import pytest

from tests.transfer.pair import CellError, home_thread

#: Packed where it was made, and never where it arrived: no content of it is agreed on.
ONCE = (
    "class C:\n    old = False\n    def __getstate__(self):\n"
    "        if self.old: raise ValueError('no')\n        return {}\n"
    "    def __setstate__(self, state): self.old = True\nm = 0"
)


@pytest.mark.parametrize("delete", ["del n", "n = 5\ndel n", "globals().pop('n') and None"])
def test_what_cannot_be_packed_where_it_arrived(either, delete):
    either.home(ONCE)
    either.gpu("n = C()")
    either.home("n, m")
    either.home(delete)
    either.gpu("m += 1")
    with pytest.raises(CellError, match="'n' is not defined"):
        either.gpu("n")
    either.home("n = C()")
    either.gpu("n, m")
    either.gpu(delete)
    either.home("m += 1")
    with pytest.raises(NameError, match="'n' is not defined"):
        either.home("n")


@pytest.mark.parametrize("cells", [["del n"], ["n = 5", "del n"], ["n = 5", "m += 1", "del n"]])
def test_what_was_in_conflict(new_pair, cells):
    pair = new_pair()
    pair.attach()
    pair.home("n = []; m = 0\ndef add(k): n.append(k)")
    with home_thread() as do:
        add = pair.ns["add"]
        pair.start_gpu("add('gpu')")
        do(lambda: add("home"))
        pair.end_gpu()
    pair.gpu("m += 1")
    assert pair.side.explain("n").reason == "conflicted"
    for cell in cells:
        pair.home(cell)
    pair.gpu("m += 1")
    with pytest.raises(CellError, match="'n' is not defined"):
        pair.gpu("n")


def test_a_conflict_that_is_open_keeps_both(new_pair):
    pair = new_pair()
    pair.attach()
    pair.home("n = []; m = 0\ndef add(k): n.append(k)")
    with home_thread() as do:
        add = pair.ns["add"]
        pair.start_gpu("add('gpu')")
        do(lambda: add("home"))
        pair.end_gpu()
    pair.gpu("m += 1")
    pair.home("m += 1")
    pair.gpu("m += 1")
    pair.side.resolve("n", "gpu")
    pair.home("assert n == ['gpu'] and m == 3")
