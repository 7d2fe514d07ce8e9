"""Random programs: as in one process, or a refusal by name."""

import sys

import pytest
from hypothesis import HealthCheck, given, note, settings

from gpulease.errors import GPULeaseError
from gpulease.verify.picture import picture
from tests.helpers import NIGHTLY
from tests.transfer.programs import PRELUDE, WATCHED, cells, plain

PROGRAMS = 2500 if NIGHTLY else 30
pytestmark = (
    [pytest.mark.nightly, pytest.mark.timeout(7200)] if NIGHTLY else pytest.mark.timeout(900)
)
_settings = settings(
    max_examples=PROGRAMS,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def check(pair, program, monkeypatch):
    expected = plain(program, monkeypatch)
    monkeypatch.setitem(sys.modules, "__main__", pair.main)
    try:
        found = played(pair, program)
    except BaseException:
        pair.restart()  # or the next program would meet what this one has left
        raise
    if found is None:
        pair.restart()
    else:
        assert found == expected


def played(pair, program):
    """Return the picture at the end, None where a person was told of something."""
    try:
        pair.home("for _n in [n for n in globals() if not n.startswith('__')]: del globals()[_n]")
        if pair.side.away_names():
            pair.restart()
        left = set(pair.gpu("pass")["names"]) & set(WATCHED)
        assert not left, f"deleted at home, still away: {left}"
        pair.home(PRELUDE)
        for beside_gpu, source in program:
            note(("gpu: " if beside_gpu else "home: ") + source)
            (pair.gpu if beside_gpu else pair.home)(source)
        pair.home("globals()")
    except GPULeaseError as error:
        if error.reason != "cannot_move":
            raise
        note(f"refused: {error}")
        return None
    if "GPULeaseError" in pair.ns["errors"]:  # something that stayed was asked for
        return None
    loud = [why for name in WATCHED if (why := pair.side.explain(name)) is not None]
    if loud:
        assert all("cannot be copied to the notebook" in why.sentence for why in loud), loud
        return None
    found = picture(pair.ns, WATCHED)
    return None if "Stayed" in repr(found) else found


@_settings
@given(program=cells)
def test_all_that_changed_travels(eager, monkeypatch, program):
    check(eager, program, monkeypatch)


@_settings
@given(program=cells)
def test_what_a_cell_needs_travels(lazy, monkeypatch, program):
    check(lazy, program, monkeypatch)
