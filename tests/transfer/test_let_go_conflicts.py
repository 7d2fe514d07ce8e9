"""A thread of home writes to what a GPU cell lets go of: never overwritten, and said by name."""

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.kinds import in_turn
from tests.transfer.pair import home_thread


@pytest.fixture
def meanwhile(pair):
    """Run a GPU cell, and while it runs a job in a thread of home; return what was said."""
    with home_thread() as do:

        def run(cell, job):
            pair.start_gpu(cell)
            do(job)
            pair.end_gpu()
            notes = [note for note in pair.after.notes if note.reason == "conflicted"]
            return [name for note in notes for name in note.names]

        yield run


CHANGES = {
    "deleted": ("c[0].append(2); del c", [1, 3]),  # nothing there has what the cell wrote
    "bound anew": ("c[0].append(2); c = None", [1, 2]),
    "taken out": ("c.pop().append(2)", [1, 2]),
    "beside a name": ("d.append(c[0]); c[0].append(2); del c", [1, 2]),
    "with a name in it": ("c[0].append(d); del c", [1, [5]]),
}


@in_turn(keep=["home", "gpu"], case=CHANGES)
def test_both_wrote(pair, meanwhile, case, keep):
    change, theirs = CHANGES[case]
    pair.home("c = [[1]]; d = [5]")
    held = pair.ns["c"][0]
    told = meanwhile(change, lambda: held.append(3))
    assert "c" in told
    assert held == [1, 3]
    with pytest.raises(GPULeaseError, match="resolve c home or"):
        pair.home("c")
    pair.side.resolve("c", keep)
    assert held == ([1, 3] if keep == "home" else theirs)
    if keep == "home":
        pair.home("assert c == [[1, 3]]")
        pair.gpu("assert c == [[1, 3]]; c[0].append(4)")
        pair.home("pass")
        assert held == [1, 3, 4]
    elif "del c" in change:
        pair.gpu("assert 'c' not in globals()")
        pair.home("assert 'c' not in globals()")
    else:
        pair.home("assert not c")


@pytest.mark.parametrize("change", ["del c", "c = 5", "c.clear()", "d = c[0]; del c, d"])
def test_what_was_only_let_go_of_keeps_what_home_wrote(pair, meanwhile, change):
    pair.home("c = [[1]]")
    held = pair.ns["c"][0]
    told = meanwhile(change, lambda: held.append(3))
    assert held == [1, 3]
    assert told == ["c"]


def test_nothing_is_in_conflict_where_no_thread_wrote(pair, meanwhile):
    pair.home("c = [[1]]")
    held = pair.ns["c"][0]
    assert meanwhile("c[0].append(2); del c", lambda: None) == []
    assert held == [1, 2]


def test_an_equal_one_in_the_place_of_one_that_is_held_is_another(pair):
    pair.home("c = [[1]]")
    held = pair.ns["c"], pair.ns["c"][0]
    pair.gpu("c[0] = [1]; del c")
    held[1].append(2)
    assert held[0] == [[1]]


def test_a_name_in_conflict_that_the_gpu_deletes_can_be_chosen(pair, meanwhile):
    pair.home("x = [1]; total = 0")
    assert meanwhile("x.append(3)", lambda: pair.ns["x"].append(2)) == ["x"]
    pair.gpu("x = 5; del x")
    pair.side.resolve("x", "home")
    pair.home("assert x == [1, 2]")
    pair.gpu("assert x == [1, 2]")
