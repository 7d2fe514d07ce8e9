"""A background pass ends soon after a cell starts, however large the value is that it looks at."""

import itertools

import pytest

from gpulease.transfer.values.groups import AbandonedError
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import TransferSettings


@pytest.fixture
def side():
    records = [{"id": n, "name": f"row {n}", "score": n / 7} for n in range(30_000)]
    return Side("h", {"records": records}, (), TransferSettings())


def giving_up_at(turn):
    """Return a check that raises when it is asked for the ``turn``-th time."""
    turns = itertools.count(1)

    def check():
        if next(turns) == turn:
            raise AbandonedError

    return check


def turns_of(look):
    turns = itertools.count()
    look(lambda: next(turns))
    return next(turns)


def test_a_walk_is_given_up_wherever_it_is(side):
    turns = turns_of(lambda check: side.survey(check=check))
    assert turns > 30
    for turn in (1, turns // 2, turns):
        with pytest.raises(AbandonedError):
            side.survey(check=giving_up_at(turn))


def test_so_is_the_pickling_of_one_list(side):
    survey = side.survey()
    group = survey.by_root["n:records"]
    turns = turns_of(lambda check: side.pack(group, survey, check))
    assert turns > 10
    for turn in (1, turns // 2, turns):
        with pytest.raises(AbandonedError):
            side.pack(group, survey, giving_up_at(turn))
    assert side.pack(group, survey).nbytes > 500_000, "and nothing is left of it"
