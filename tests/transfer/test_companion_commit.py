"""The companion fails while it commits what home sent: no name is half there, and none wrong.

The fault comes at each point of a commit in turn: an exception, which the companion outlives, or
its death.
"""

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.pair import CellError

BEFORE = """
class Box:
    kind = [1]
    def look(self): return self.kind, vars(self)
def inner(held=[1]): return held
def through(): return box.look()[0], hasattr(box, 'more')
box = Box(); box.n = [1]; numbers = [1]; table = {'k': 1}; other = numbers, table; text = 'a'
"""
CHANGE = (
    "Box.kind = [1, 2]; Box.more = 5; box.n.append(2); numbers.append(2); table['k'] = 2;"
    "text = 'b'; inner.__defaults__[0].append(2)"
)
BACK = (
    "Box.kind = [1]; del Box.more; box.n.pop(); numbers.pop(); table['k'] = 1; text = 'a';"
    "inner.__defaults__[0].pop()"
)
READS = {
    "box": "box.n", "look": "box.look()[0], hasattr(box, 'more')", "numbers": "numbers",
    "table": "table['k']", "other": "other", "text": "text", "inner": "inner()",
}  # fmt: skip
#: Steps of a commit that the change takes.
POINTS = ("_bind", "put", "apply", "apply_methods", "apply_rest", "_after")


def plain(*cells):
    """Return what each read gives in one interpreter after these cells."""
    space = {}
    for cell in cells:
        exec(cell, space)
    return {name: repr(eval(read, space)) for name, read in READS.items()}


def seen(run):
    """Return what each read gives, each by a cell of its own, but for those refused by name."""
    out, refused = {}, []
    for name, read in READS.items():
        try:
            out[name] = run(name, read)
        except (GPULeaseError, CellError) as error:
            refused.append(str(error))
    assert all(any(n in said for n in (*READS, "Box")) for said in refused), refused
    return out


@pytest.fixture(params=POINTS)
def point(request):
    return request.param


def on_the_gpu(pair):
    """Return a function that reads on the GPU."""

    def run(name, read):
        pair.gpu(f"seen_{name} = repr(({read}))")
        return pair.home(f"seen_{name}")

    return run


@pytest.fixture
def agreed(pair):
    """Both sides hold the same, and home holds more of it than its names."""
    pair.home(BEFORE)
    pair.gpu("numbers, table, other, text, inner, box.look()")
    return pair


def fault(pair, kind, point):
    """Have the companion's next commit fail; return whether it came to that."""
    pair.companion.ask({"op": "fault", "kind": kind, "point": point})
    try:
        pair.gpu("numbers, table, other, text, inner, box.look(); hold = 1")
    except (GPULeaseError, EOFError, OSError):
        return True
    return bool(pair.companion.ask({"op": "fault", "kind": "", "point": point})["came"])


def test_after_an_exception_what_is_there_is_right(agreed, point):
    pair = agreed
    pair.home(CHANGE)
    assert fault(pair, "raise", point)
    first = seen(on_the_gpu(pair))
    assert first == {name: plain(BEFORE, CHANGE)[name] for name in first}
    pair.home("pass")
    assert {n: repr(pair.home(read)) for n, read in READS.items()} == plain(BEFORE, CHANGE)


def test_what_home_takes_back_meanwhile_is_taken_back_there(agreed, point):
    pair = agreed
    pair.home(CHANGE)
    assert fault(pair, "raise", point)
    pair.home(BACK)
    again = seen(on_the_gpu(pair))
    assert again == plain(BEFORE, CHANGE, BACK)


def test_after_a_death_home_has_all_that_it_had(agreed, point):
    pair = agreed
    pair.gpu("only_there = (i for i in range(3))")
    pair.home(CHANGE)
    assert fault(pair, "kill", point)
    notes = pair.side.disconnect(died=True, cell=str(pair.count))
    assert {name for note in notes for name in note.names} == {"only_there"}
    assert {n: repr(pair.home(read)) for n, read in READS.items()} == plain(BEFORE, CHANGE)
    pair.attach()
    assert seen(on_the_gpu(pair)) == plain(BEFORE, CHANGE)
