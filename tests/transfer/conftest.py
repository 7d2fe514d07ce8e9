import zlib

import pytest

from tests.transfer.kinds import BY_NEED, lend, open_pair
from tests.transfer.pair import Pair


@pytest.fixture
def new_pair(monkeypatch):
    made = []

    def make(**options):
        pair = Pair(monkeypatch, **options)
        made.append(pair)
        return pair

    yield make
    for pair in made:
        pair.close()


@pytest.fixture
def new_halves(monkeypatch):
    """Return what makes a pair over a real wire, as the kernel has it."""
    made = []

    def make(**options):
        made.append(Pair(monkeypatch, **options))
        return made[-1]

    yield make
    for pair in made:
        pair.close()


@pytest.fixture(scope="module")
def lent():
    """The pair that tests of a file lend to each other."""
    with open_pair() as pair:
        yield pair


@pytest.fixture
def pair(lent):
    """A pair with an empty namespace."""
    with lend(lent) as pair:
        yield pair


@pytest.fixture(scope="module")
def eager():
    """One pair for all tests of a file; the small travels with every switch."""
    with open_pair() as pair:
        yield pair


@pytest.fixture(scope="module")
def lazy():
    """The same, where everything travels by need."""
    with open_pair(BY_NEED) as pair:
        yield pair


@pytest.fixture
def either(request, eager, lazy):
    """One of the two, as the test's name falls, so that a file's tests see both."""
    turn = zlib.crc32(request.node.name.encode()) % 2
    with lend((eager, lazy)[turn]) as pair:
        yield pair
