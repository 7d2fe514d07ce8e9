"""Cells alternate between two processes; what a plain kernel gives, the pair gives."""

import pytest

from gpulease.errors import GPULeaseError


def test_values_and_mutations_come_home(pair):
    pair.home("a = [1]; b = a; d = {'list': a}; n = 5; s = 'text'")
    pair.gpu("a.append(2); n += 1; t = (1, a)")
    pair.home("assert a == [1, 2] and b is a and d['list'] is a and t[1] is a and n == 6, (a, b)")


def test_functions_bind_to_the_other_namespace(pair):
    pair.home("k = 2\ndef double(x): return x * k\ndef change():\n    global k\n    k = 10")
    pair.gpu("assert double(3) == 6\nchange()\nassert double(3) == 30")
    pair.home("assert k == 10 and double(1) == 10")
    pair.home("k = 3")
    pair.gpu("assert double(1) == 3")


def test_deletion_travels(pair):
    pair.home("x = 1; y = 2")
    pair.gpu("del x")
    pair.home("assert 'x' not in globals()")
    pair.home("del y")
    pair.gpu("assert 'y' not in globals()")


def test_large_waits_until_it_is_needed(pair):
    pair.home("import numpy as np\nbig = np.arange(4_000_000.0)")
    pair.gpu("x = 1")
    assert "big" not in pair.gpu("y = 1")["names"]
    pair.gpu("total = big.sum()\nbig[0] = 7")
    pair.home("assert big[0] == 7 and total > 1")


def test_a_large_result_is_brought_home(pair):
    pair.gpu("import numpy as np\nw = np.ones(5_000_000)")
    assert "w" not in pair.ns or pair.ns["w"].sum() == 5_000_000
    pair.home("assert w.sum() == 5_000_000")


def test_a_generator_stops_only_the_cell_that_needs_it(pair):
    pair.home("g = (i for i in range(3)); n = 1")
    pair.gpu("n += 1")
    with pytest.raises(GPULeaseError, match=r"g cannot travel.*generator"):
        pair.gpu("next(g)")
    pair.home("assert next(g) == 0 and n == 2")


def test_sticky_cells_send_nothing(pair):
    pair.home("data = list(range(1000))")
    pair.gpu("data.append(1)")
    pair.gpu("pass")
    assert pair.last.bytes == 0
    assert pair.last.moved == ()


def test_drain_leaves_nothing_behind(pair):
    pair.home("x = [1]")
    pair.gpu("import numpy as np\nw = np.ones(5_000_000)\nx.append(2)")
    report = pair.side.drain(60)
    assert report.done, report
    assert pair.ns["w"].sum() == 5_000_000
    assert pair.ns["x"] == [1, 2]


def test_random_state_goes_on(pair):
    import random

    pair.home("import random; random.seed(3)")
    pair.gpu("r = [random.random() for _ in range(3)]")
    pair.home("q = random.random()")
    plain = random.Random(3)
    assert pair.ns["r"] == [plain.random() for _ in range(3)]
    assert pair.ns["q"] == plain.random()


def test_the_result_of_a_cell(pair):
    pair.gpu("[1, 2, 3]")
    assert pair.side.result(pair.count) == [1, 2, 3]
    pair.gpu("x = {'a': 1}\nx")
    assert pair.side.result(pair.count) is pair.ns["x"]


def test_killed_companion_loses_only_what_was_not_home(pair):
    pair.home("x = 1; y = [1]")
    pair.gpu("y.append(2)")
    pair.home("pass")
    pair.start_gpu("import time\nx = 2\ntime.sleep(60)")
    pair.companion.kill()
    notes = pair.side.disconnect(died=True, cell="3")
    assert "x" in {name for note in notes for name in note.names}
    assert pair.ns["y"] == [1, 2]
    assert "x" not in pair.ns
    assert "cell [3]" in pair.side.explain("x").sentence
    pair.side.recover(["x"])
    assert pair.ns["x"] == 1
    pair.attach()
    pair.gpu("y.append(x)")
    pair.home("assert y == [1, 2, 1]")


def test_a_cell_that_was_not_sent_leaves_nothing_open(pair):
    pair.home("x = [1]")
    pair.side.before_gpu_cell("x.append(2)")
    pair.gpu("x.append(3)")
    assert pair.ns["x"] == [1, 3]
    pair.side.before_gpu_cell("x")
    pair.home("assert x == [1, 3]")


def test_of_many_results_the_newest_are_kept(new_pair):
    pair = new_pair(settings={"results": 5})
    pair.attach()
    for number in range(8):
        pair.gpu(f"[{number}]")
    assert pair.side.result(8) == [7]
    assert pair.side.result(5) == [4]
    with pytest.raises(GPULeaseError, match=r"Cell \[1\] left no result"):
        pair.side.result(1)


def test_what_only_a_refused_value_holds_does_not_travel(pair):
    pair.gpu("import threading\nbig = bytes(50_000)\nclass Held: data = [big]")
    pair.home("pass")
    pair.gpu("t = threading.Thread(target=lambda b=bytes(300_000): len(b))\nmade = [1]")
    assert pair.after.bytes < 100_000, "the thread stays, and so does what it holds"
    pair.home("assert made == [1] and Held.data[0] is not None")
    assert pair.last.bytes < 100_000


@pytest.mark.parametrize("result", ["a, A.made", "A.made['b'], A", "[A('c'), a.other]", "A, a, b"])
def test_the_result_of_a_cell_shares_its_parts_with_variables(pair, result):
    """It is fetched by itself, when the GPU goes."""
    for source in (
        "class A:\n    made = {}\n"
        "    def __init__(self, n): self.n = n; self.other = [n]; A.made[n] = self\n",
        "a = A('a'); b = A('b')",
    ):
        pair.gpu(source)
        assert pair.side.drain(30).done
        pair.side.commit_pending()
        pair.side.disconnect(died=False)
        pair.companion.close()
        pair.attach()  # which knows no part of what came home by an id
    pair.gpu(f"a.v = 1; {result}")
    assert pair.side.drain(30).done
    pair.side.commit_pending()
    found = pair.side.result(pair.count)
    pair.home("assert A.made['a'] is a and A.made['b'] is b and a.v == 1")
    held = [part for part in found if part in pair.ns["A"].made.values()]
    assert all(part is pair.ns[part.n] for part in held if part.n in "ab")
    pair.gpu("assert A.made['a'] is a and A.made['b'] is b and a.v == 1")
