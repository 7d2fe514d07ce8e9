"""What fails while it is put in place is named, and everything else arrives."""

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer.values.landing import commit

BEFORE = "class Box: pass\na = Box(); a.n = [1]; b = [1]; c = {'k': 1}; d = {'k': 1}"
AFTER = "a.n.append(2); b.append(2); c['k'] = 2; d['k'] = 2"


class FullDevice:
    """Puts content in place until it comes to a dictionary that is ``whose``: there is no room."""

    def __init__(self, monkeypatch, whose):
        self.whose = whose
        self._put = commit.apply_content
        monkeypatch.setattr(commit, "apply_content", self)

    def __call__(self, obj, content, code):
        if obj is self.whose:
            obj["k"] = -1
            raise RuntimeError("out of memory\nand a long story")
        self._put(obj, content, code)


@pytest.fixture
def broken(pair, monkeypatch):
    """A pair whose ``c`` did not come home after a GPU cell."""
    pair.home(BEFORE)
    pair.held = [pair.ns[name] for name in "abcd"]  # others hold them: they are changed in place
    pair.gpu("a, b, c, d")
    with monkeypatch.context() as fault:
        FullDevice(fault, pair.held[2])
        pair.gpu(AFTER)
        pair.home("a, b, d")
    return pair


def test_the_rest_arrives(broken):
    ns = broken.ns
    assert (ns["a"].n, ns["b"], ns["d"]) == ([1, 2], [1, 2], {"k": 2})


def test_its_name_is_absent_and_says_why(broken):
    assert "c" not in broken.ns
    row = next(row for row in broken.side.status() if row.name == "c")
    assert "put in place in part only (RuntimeError: out of memory)" in row.blocker


def test_the_next_try_brings_it_whole(broken):
    broken.home("seen = c['k']")
    assert broken.ns["seen"] == 2
    assert broken.ns["c"] is broken.held[2]


def test_a_gpu_cell_goes_on_with_what_it_had(broken):
    broken.gpu("c['k'] += 1; seen = c['k']")
    broken.home("seen, c")
    assert (broken.ns["seen"], broken.ns["c"]) == (3, {"k": 3})


def test_a_cell_that_needs_it_now_stops(pair, monkeypatch):
    pair.home(BEFORE)
    pair.held = [pair.ns[name] for name in "abcd"]
    pair.gpu("a, b, c, d")
    FullDevice(monkeypatch, pair.held[2])
    pair.gpu(AFTER)
    with pytest.raises(GPULeaseError, match=r"c cannot travel.*in part only"):
        pair.home("c['k']")
