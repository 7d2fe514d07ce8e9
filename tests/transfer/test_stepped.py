"""Differential, with every delay drawn: late answers change no value that a program has."""

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.verify.picture import picture
from tests.transfer.programs import PRELUDE, cells
from tests.transfer.stepped import NOTHING_SMALL
from tests.transfer.test_same_as_plain import WATCHED, plain


def check(pair, program, tape, monkeypatch):
    expected = plain(program, monkeypatch)
    pair.begin(tape)
    try:
        pair.home(PRELUDE)
        for beside_gpu, source in program:
            note(("gpu: " if beside_gpu else "home: ") + source)
            (pair.gpu if beside_gpu else pair.home)(source)
        pair.home("globals()")
    except GPULeaseError as error:
        if error.reason != "cannot_move":
            raise
        note(f"refused: {error}")
        return
    loud = [why for name in WATCHED if (why := pair.side.explain(name)) is not None]
    if loud:
        assert all("cannot be copied to the notebook" in why.sentence for why in loud), loud
        return
    assert picture(pair.ns, WATCHED) == expected


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(program=cells, tape=st.lists(st.integers(0, 11), max_size=120))
def test_however_late(stepped, monkeypatch, program, tape):
    check(stepped, program, tape, monkeypatch)


@pytest.mark.parametrize("after", ["c = b", "a[0] += 1"])
def test_what_was_put_away_and_is_in_doubt_is_neither_lost_nor_missed(stepped, after):
    """A large value that no cell read, bound by a cell that failed, before its answer came."""
    stepped.begin()
    stepped.home("a = [1]\nb = [2]\nx = []")
    stepped.gpu("a")
    stepped.home("pass")
    stepped.sizes, stepped.late = NOTHING_SMALL, True
    stepped.gpu("try:\n    x.append(1)\n    a = {}['k']\nexcept KeyError: pass")
    assert stepped.side.unavailable.doubtful == {"a", "x"}
    stepped.gpu(after)
    stepped.late = False
    stepped.home("assert a == ([1] if 'c' in globals() else [2])")


@pytest.mark.parametrize(
    ("cell", "shared"),
    [("c = list(c)", "c[0]"), ("x = c[0]\ndel c", "x"), ("x = {1: c}\nc = 5", "x[1][0]")],
)
def test_what_a_closure_at_home_shares_with_a_new_object_is_shared_still(stepped, cell, shared):
    """Of the closure, which is too large to travel, only its content is on the GPU's side."""
    stepped.begin()
    stepped.sizes, stepped.drops = NOTHING_SMALL, True
    stepped.home("c = ([], {})\nd = (lambda v: lambda: v)(c)")
    stepped.gpu(cell)
    stepped.home(f"assert d()[0] is {shared}")


def test_a_part_that_only_came_along_goes_with_what_it_came_with(stepped):
    stepped.begin()
    stepped.sizes, stepped.drops = NOTHING_SMALL, True
    stepped.home("import weakref\nclass Big: pass\nc = ([Big()],)\nd = (lambda v: lambda: v)(c)")
    stepped.gpu("import weakref\nseen = weakref.ref(c[0][0])")
    stepped.gpu("del c")
    stepped.gpu("assert seen() is None")
