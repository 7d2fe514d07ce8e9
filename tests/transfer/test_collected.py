"""What a GPU cell changed is collected when it has ended."""

import pytest

from tests.helpers import wait_for


def settled(pair):
    """Everything is known on both sides."""
    pair.home("pass")
    pair.gpu("pass")


@pytest.mark.parametrize(
    ("cell", "check"),
    [
        ("x.append(2)", "assert x == [1, 2]"),
        ("new = 3", "assert new == 3"),
        ("del x", "assert 'x' not in globals()"),
        ("globals()['hidden'] = 4", "assert hidden == 4"),
        ("import random; random.seed(5)", "assert random.random() == random.Random(5).random()"),
        ("import os; os.environ['COLOUR'] = 'red'", "assert os.environ['COLOUR'] == 'red'"),
        ("add(7)", "assert x == [1, 7]"),
    ],
)
def test_whatever_a_cell_changed_is_collected(pair, cell, check):
    pair.home("import os, random\nx = [1]\ndef add(n): x.append(n)")
    settled(pair)
    pair.gpu(cell)
    pair.home(check)
    pair.home("os.environ.pop('COLOUR', None)")


def test_a_thread_that_lives_there_is_told_of(pair):
    pair.gpu(
        "import threading\nx = []\ngo = threading.Event()\n"
        "thread = threading.Thread(target=lambda: (go.wait(60), x.append(1)))\nthread.start()"
    )
    pair.gpu("pass")
    pair.gpu("go.set(); thread.join()")
    pair.home("assert x == [1]")


def test_a_cell_that_overtakes_an_acknowledgement_parts_nothing(pair):
    pair.home("a = {}; b = [0]")
    settled(pair)
    request, held = pair.side.peer.wire.request, []

    def late(kind, *rest):
        return held.append((kind, *rest)) if kind == "ack" else request(kind, *rest)

    pair.side.peer.wire.request = late
    pair.gpu("b = [a]")
    pair.start_gpu("b.append(1)")
    pair.companion.hear()
    pair.side.peer.wire.request = request
    for each in held:
        request(*each)
    pair.side.after_gpu_cell(pair.count)
    wait_for(lambda: (pair.side.commit_pending(), len(pair.ns.get("b", ())) == 2)[1])
    pair.home("globals()")  # on a busy machine, a is away until a cell may read it
    assert pair.ns["b"][0] is pair.ns["a"]
    assert not pair.side.explain("a")
