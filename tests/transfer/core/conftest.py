import collections

import pytest

from gpulease.transfer.side import Side
from tests.transfer.core.pair import CorePair
from tests.transfer.kinds import BY_NEED, open_pair


@pytest.fixture(scope="module")
def eager():
    """One pair for all tests of a file; all that changed travels with every switch."""
    with open_pair(kind=CorePair) as pair:
        pair.reached = collections.defaultdict(set)
        yield pair


@pytest.fixture(scope="module")
def lazy():
    """The same, where only what a cell needs travels."""
    with open_pair(BY_NEED, kind=CorePair) as pair:
        pair.reached = collections.defaultdict(set)
        yield pair


@pytest.fixture
def sides():
    """Home and companion in this process, each over a namespace of its own."""
    made = []
    for label in "ha":
        space = {"__name__": "__main__", "__builtins__": __builtins__}
        made.append(Side(label, space, hidden=set(space)))
    return made
