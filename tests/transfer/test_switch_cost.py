"""What a switch looks at: work follows what the cell touches, not what the notebook holds."""

import sys
from pathlib import Path

import pytest

import gpulease
from gpulease.transfer.survey import Survey
from tests.transfer.kinds import empty, in_turn, open_pair

OURS = str(Path(gpulease.__file__).parent)
#: More objects than a group may have to be small.
MANY = "big = [{'a': n, 'b': str(n)} for n in range(6000)]"


@pytest.fixture(scope="module")
def shared():
    with open_pair({}) as made:
        yield made


@pytest.fixture
def pair(shared, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", shared.main)
    empty(shared)
    return shared


def held_by_both(pair, source=MANY):
    pair.home(source)
    pair.gpu("n = len(big)")
    pair.home("pass")


CHANGES = [
    ("big[3]['a'] = -1", "assert big[3]['a'] == -1 and len(big) == 6000"),
    ("big = big + [0]", "assert len(big) == 6001"),
    ("big = 5", "assert big == 5"),
    ("row = big[3]; row['a'] = -1", "assert big[3] is row and row['a'] == -1"),
    ("other = big", "assert other is big"),
    ("other = big; del big", "assert len(other) == 6000"),
    ("del big[10:]", "assert [d['a'] for d in big] == list(range(10))"),
]


@in_turn(changed=CHANGES, between=[0, 1, 2])
def test_what_home_changed_while_it_was_put_away_is_seen(pair, changed, between):
    change, then = changed
    held_by_both(pair)
    pair.gpu("pass")
    pair.home(change)
    for _ in range(between):
        pair.gpu("pass")
    pair.gpu(then)
    pair.home(then)


def test_a_name_that_was_put_away_can_be_bound_and_deleted_beside_the_gpu(pair):
    held_by_both(pair)
    pair.home("big[0]['a'] = 'home'")
    pair.gpu("pass")
    pair.gpu("big = ['gpu']")
    pair.home("assert big == ['gpu']")
    pair.gpu("del big")
    pair.home("assert 'big' not in globals()")


def test_what_was_agreed_on_and_is_bound_again_replaces_what_home_made_of_it(pair):
    held_by_both(pair)
    pair.home("big += [3]")
    pair.gpu(MANY)
    pair.home("assert len(big) == 6000")


def test_part_of_what_was_left_out_is_one_with_it_when_a_cell_changes_it(pair):
    held_by_both(pair)
    pair.home("row = big[3]")
    pair.gpu("pass")
    pair.gpu("row['a'] = 'gpu'")
    pair.home("assert big[3] is row and row['a'] == 'gpu'")
    pair.gpu("assert big[3] is row and row['a'] == 'gpu'")


def test_what_a_thread_beside_the_gpu_may_change_is_not_put_away(pair):
    held_by_both(pair)
    pair.gpu(
        "import threading\ngo, done = threading.Event(), threading.Event()\n"
        "def later(mine):\n    go.wait(); mine.append('more'); done.set()\n"
        "threading.Thread(target=later, args=(big,)).start()"
    )
    pair.home("pass")
    pair.gpu("pass")
    pair.gpu("go.set(); done.wait()")
    pair.home("assert big[-1] == 'more'")


@pytest.mark.parametrize(
    "value",
    [
        "[{'names': 1, 'units': 2}, 'names']",
        "[('a', 1), ('a', 1), {'big': 'big'}, 'n', '']",
        "[1.5, None, True, 2**80, b'', b'x', b'xy', 'x' * 70000]",
        "[[], [[]], {}, (), ((),), bytearray(b'ab')]",
        "['é', 'a' + chr(0xdc80), 'same'] * 3",
        "'text'",
        "2**90",
        "-0.0",
        "1j",
    ],
)
def test_what_both_sides_pack_alike_is_the_same_without_a_look(pair, value):
    """Were it not, what nobody changed would travel again."""
    pair.home("pass")
    pair.gpu(f"big = {value}")
    pair.home("seen = repr(big)")
    pair.gpu("k = repr(big)")
    assert "big" not in pair.last.moved
    pair.home("assert seen == k")
    assert "big" not in pair.last.moved


def test_bringing_a_small_value_home_takes_few_of_our_functions(pair):
    """A ratchet: what is read to follow it grows only where somebody says so here."""
    pair.home("y = 1")
    for _ in range(2):
        pair.gpu("x = [1]")
        pair.home("x")
    called = set()

    def note_call(frame, event, _arg):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS) and code.co_name[0] != "<":
            called.add((code.co_filename, code.co_qualname))

    pair.start_gpu("x = [1, 2]")
    sys.setprofile(note_call)
    try:
        pair.end_gpu()
    finally:
        sys.setprofile(None)
    pair.home("assert x == [1, 2]")
    assert len(called) <= 118
    assert len({file for file, _ in called}) <= 34


GRAPH = """
class Node:
    def __init__(self): self.next = None
nodes = [Node() for _ in range(2000)]
{lead}
a, b, c, pair_, table = nodes[0], nodes[9], nodes[99], (nodes[1], nodes[2]), {{"n": nodes[3]}}
stuck = Node(); stuck.next = a; stuck.view = memoryview(b"x")
"""
LEADS = {
    "to each other": "for node in nodes: node.next = nodes",
    "in a chain": "for node, other in zip(nodes, nodes[1:] + nodes[:1]): node.next = other",
}


@pytest.mark.parametrize("lead", LEADS)
def test_what_many_variables_lead_to_is_packed_once(pair, monkeypatch, lead):
    """Each part of a figure leads to all of it; and what is refused beside it stays alone."""
    many = []
    packed = Survey._note

    def note(self, component, writing, pinned):
        packed(self, component, writing, pinned)
        many.append(len(component.members))

    pair.home("pass")
    pair.home(GRAPH.format(lead=LEADS[lead]))
    monkeypatch.setattr(Survey, "_note", note)
    pair.gpu("assert table['n'] is nodes[3] and b is nodes[9]; b.tag = 1; nodes[9].next = c")
    pair.home(
        "assert b.next is c and nodes[9].tag == 1 and stuck.next is a and table['n'] is nodes[3]"
    )
    # Two looks here; and what holds each other in a chain is first met as if it did not.
    assert sum(each > 1000 for each in many) <= 6, many
