"""What people make with torch and its kin; collected where torch is (make test-frameworks)."""

import importlib.util
import os
from pathlib import Path

import pytest

from tests.transfer.conftest import lazy, new_pair
from tests.transfer.kinds import open_pair

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.frameworks)


HERE = Path(__file__).parent
__all__ = ["lazy", "new_pair"]  # fixtures of the other room that carries values
# Small networks: a second thread would only wait for a core that another process has.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def eager():
    """One pair for all tests of a file; what is small travels with every switch."""
    with open_pair({"reply_wait": 30}) as pair:
        yield pair
