import pytest

from tests.transfer.kinds import BY_NEED, open_pair
from tests.transfer_next.pair import NextPair


@pytest.fixture(scope="module")
def eager():
    """One pair for all tests of a file; all that changed travels with every switch."""
    with open_pair(kind=NextPair) as pair:
        yield pair


@pytest.fixture(scope="module")
def lazy():
    """The same, where only what a cell needs travels."""
    with open_pair(BY_NEED, kind=NextPair) as pair:
        yield pair
