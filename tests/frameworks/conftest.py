"""What people make with torch and its kin; collected where torch is (make test-frameworks)."""

import importlib.util
import os
from pathlib import Path

import pytest

from tests.transfer.kinds import BY_NEED, open_pair
from tests.transfer.pair import Pair

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.frameworks)


HERE = Path(__file__).parent
# Small networks: a second thread would only wait for a core that another process has.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def eager():
    """One pair for all tests of a file; what is small travels with every switch."""
    with open_pair({"reply_wait": 30}) as pair:
        yield pair


@pytest.fixture(scope="module")
def lazy():
    """The same, where everything travels by need."""
    with open_pair(BY_NEED) as pair:
        yield pair


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
