import pytest

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
def pair(new_pair):
    made = new_pair()
    made.attach()
    return made
