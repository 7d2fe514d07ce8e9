"""Plays a notebook's cells at home and on the GPU in every pattern, against one process."""

import sys

import pytest

from gpulease.verify.placements import SEED, placements
from tests.transfer.kinds import empty, plain


def each(notebooks, quick=()):
    """Return names for parametrize; those that are not ``quick`` run in `make test-nightly`."""
    later = pytest.mark.nightly
    return [pytest.param(name, marks=() if name in quick else later) for name in notebooks]


def patterns(name, count):
    """Return by name where each cell runs: True on the GPU."""
    wanted = ("alternating", "alternating-home", "random", "gpu")
    return {p.name: p.away for p in placements(wanted, count, f"{SEED} {name}")}


def check(cells, where, pairs):
    """Assert that the notebook saw in each placement what it sees in one process."""
    expected = plain(cells)
    for (label, places), pair in zip(where.items(), pairs, strict=True):
        if "keras" in cells[0]:
            pair.restart()  # Keras counted layers in this process just now, and in no cell of it
        assert placed(pair, cells, places) == expected, label


def placed(pair, cells, places):
    """Run each cell on the GPU where its place says so; return what the notebook saw.

    What libraries change in themselves is no news to its person.
    """
    sys.modules["__main__"] = pair.main
    empty(pair)
    told = []
    try:
        for source, beside_gpu in zip(cells, places, strict=True):
            (pair.gpu if beside_gpu else pair.home)(source)
            told += [note for note in pair.last.notes if note.reason == "module"]
        pair.home("seen")
        assert not told, told
    except BaseException:
        pair.restart()  # the next notebook of this pair is not to blame
        raise
    return pair.ns["seen"]


def with_the_gpu_gone_between_any_two_cells(new_pair, cells, *, killed):
    """Run every cell beside another GPU; return what the notebook saw."""
    pair = new_pair()
    sys.modules["__main__"] = pair.main
    for source in cells:
        pair.attach()
        pair.gpu(source)
        assert pair.side.drain(60).done
        pair.side.disconnect(died=killed)
        (pair.companion.kill if killed else pair.companion.close)()
    pair.companion = None
    pair.home("seen")
    return pair.ns["seen"]
