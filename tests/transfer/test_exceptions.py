"""Exceptions that a notebook keeps travel without their frames, whatever was in those."""

import pytest

MAKE = """
class Mine(ValueError): pass
def deep(x):
    e = Mine('why')
    e.part = [x]
    raise e
def outer(held):
    try:
        deep(3)
    except Mine as inner:
        held.append(1)
        raise LookupError('out') from inner
shared = [0]
kept = []
try:
    outer(shared)
except LookupError as found:
    err = found
    kept.append(found)
"""


@pytest.mark.parametrize("made", ["home", "gpu"])
def test_an_exception_whose_frames_hold_it_travels(pair, made):
    here, there = (pair.home, pair.gpu) if made == "home" else (pair.gpu, pair.home)
    here(MAKE)
    there("cause = err.__cause__; cause.part.append(4); shared.append(2)")
    assert pair.home("(kept[0] is err, err.__cause__.part, type(err.__cause__) is Mine)") == (
        True, [3, 4], True,
    )  # fmt: skip
    assert pair.home("shared") == [0, 1, 2]
    assert pair.home("err.__cause__ is cause")


def test_what_a_frame_of_it_holds_is_not_in_use(pair):
    """A set that was iterated when the error was raised may be replaced."""
    pair.gpu("""
def take(values):
    for value in values:
        for row in iter(values):
            raise ValueError(value)
values = {1}
try:
    take(values)
except ValueError as found:
    err = found
""")
    pair.home("values.add(2)")
    pair.gpu("values.add(3)")
    assert pair.home("(values, str(err))") == ({1, 2, 3}, "1")


def test_a_traceback_with_a_name_stays(pair):
    pair.gpu(MAKE + "trace = err.__traceback__")
    pair.home("err")
    pair.gpu("name = trace.tb_frame.f_code.co_name")
    assert pair.home("name") == "<module>"
