"""Differential: any program, its cells placed anywhere, gives what a plain process gives."""

import os
import sys
import types

import pytest
from hypothesis import HealthCheck, given, note, settings

from gpulease.errors import GPULeaseError
from gpulease.verify.picture import picture
from tests.transfer.companion_main import run
from tests.transfer.programs import NAMES, PRELUDE, cells

WATCHED = (*NAMES, "errors")


def plain(program, monkeypatch):
    main = types.ModuleType("__main__")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "__main__", main)
        run(main.__dict__, PRELUDE)
        for _, source in program:
            run(main.__dict__, source)
        return picture(main.__dict__, WATCHED)


def check(pair, program, monkeypatch):
    expected = plain(program, monkeypatch)
    try:
        compare(pair, program, expected)
    except BaseException:
        pair.restart()  # or the next program would meet what this one has left
        raise


def compare(pair, program, expected):
    try:
        pair.home("for _n in [n for n in globals() if not n.startswith('__')]: del globals()[_n]")
        if pair.side.away_names():
            note(f"left away: {pair.side.status()}")
            pair.restart()
        left = set(pair.gpu("pass")["names"]) & set(WATCHED)
        assert not left, f"deleted at home, still away: {left}"
        pair.home(PRELUDE)
        for beside_gpu, source in program:
            note(("gpu: " if beside_gpu else "home: ") + source)
            (pair.gpu if beside_gpu else pair.home)(source)
        pair.home("globals()")
        if "GPULeaseError" in pair.ns.get("errors", ()):  # something that stayed was asked for
            pair.restart()
            return
    except GPULeaseError as error:
        if error.reason != "cannot_move":
            raise
        note(f"refused: {error}")
        pair.restart()
        return
    loud = [why for name in WATCHED if (why := pair.side.explain(name)) is not None]
    if loud:
        assert all("cannot be copied to the notebook" in why.sentence for why in loud), loud
        pair.restart()
        return
    assert picture(pair.ns, WATCHED) == expected


NIGHTLY = os.environ.get("GPULEASE_NIGHTLY") == "1"
#: Programs for each of the three tests.
PROGRAMS = 700 if NIGHTLY else 30
# A limit that strikes within an example would be shrunk like a failure.
pytestmark = (
    [pytest.mark.nightly, pytest.mark.timeout(7200)] if NIGHTLY else pytest.mark.timeout(900)
)
_settings = settings(
    max_examples=PROGRAMS,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_settings
@given(program=cells)
def test_everything_small(pair, monkeypatch, program):
    check(pair, program, monkeypatch)


@pytest.fixture
def lazy_pair(new_pair):
    made = new_pair(settings={"small_bytes": -1})
    made.attach()
    return made


@_settings
@given(program=cells)
def test_everything_large_and_by_need(lazy_pair, monkeypatch, program):
    check(lazy_pair, program, monkeypatch)
