"""Values whose pickle differs each time: never in conflict, never lost, changes still travel."""

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.pair import home_thread

#: ``__reduce__`` draws a number, so that no two pickles are equal.
DRAWING = (
    "import uuid\n"
    "class Odd:\n"
    "    def __init__(self): self.parts = [1]\n"
    "    def __getstate__(self): return {'parts': self.parts, 'mark': str(uuid.uuid4())}\n"
    "odd = Odd()"
)


def test_what_pickles_anew_each_time_is_not_in_conflict(pair):
    pair.home(DRAWING)
    pair.gpu("odd.parts.append(2)")
    pair.gpu("odd.parts.append(3)")
    pair.home("assert odd.parts == [1, 2, 3]")
    pair.gpu("odd.parts.append(4)")
    assert not pair.after.notes
    pair.home("assert odd.parts == [1, 2, 3, 4]")


def test_an_unchanged_one_is_not_sent_again(pair):
    pair.home(DRAWING)
    pair.gpu("odd")
    pair.home("n = 1")
    pair.gpu("odd, n")
    assert "odd" not in pair.last.moved


def test_a_real_write_to_one_is_still_a_conflict(pair):
    pair.home(DRAWING)
    pair.gpu("odd")
    with home_thread() as do:
        pair.start_gpu("odd.parts.append(2)")
        do(lambda: pair.ns["odd"].parts.append("thread"))
        pair.end_gpu()
    assert "conflicted" in {note.reason for note in pair.after.notes}
    with pytest.raises(GPULeaseError, match="changed in your notebook and by a GPU cell"):
        pair.home("odd")


DATACLASSES = """
from dataclasses import dataclass, field
@dataclass
class Step:
    loss: float = 0.0
@dataclass
class Run:
    steps: list = field(default_factory=list)
    best: Step | None = None
"""
COUNTING = """
class C:
    count = 0
    def __init__(self, values): self.values = values
    def __reduce__(self):
        C.count += 1
        return C, (list(self.values),)
"""


def test_where_nothing_of_home_ran_there_is_no_conflict(pair):
    pair.gpu(DATACLASSES)
    pair.home("run = Run()\nrun.steps.append(Step(1.0))")
    pair.gpu("run.steps.append(Step(0.5)); run.best = run.steps[-1]")
    pair.home("assert run.best is run.steps[1] and run.best.loss == 0.5")
    pair.gpu("run.best = run.steps[0]; Step.loss = 2.0")
    pair.home("assert run.best is run.steps[0] and Step().loss == 0.0 and type(run.best) is Step")


def test_a_pickle_that_counts_is_no_conflict(pair):
    pair.home(COUNTING + "c = C([])")
    for number in range(3):
        pair.gpu(f"c.values.append({number})")
        pair.home(f"assert c.values == list(range({number + 1})), c.values")
