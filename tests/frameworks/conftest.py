"""What people make with torch and its kin; collected where torch is (make test-frameworks)."""

import importlib.util
import json
import os
from pathlib import Path

import pytest

from tests.transfer.conftest import lazy, new_halves, new_pair
from tests.transfer.kinds import open_pair

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


#: Set by tools/test_gpu.py: the device under test, and where its figures go.
DEVICE = os.environ.get("GPULEASE_TEST_DEVICE", "")
REPORT = os.environ.get("GPULEASE_FIGURES", "")
FIGURES = {}


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.frameworks)
            item.add_marker(pytest.mark.timeout(600))  # imports, and each side compiles
            if DEVICE and item.path.name == "test_devices.py":
                item.add_marker(pytest.mark.gpu)


def pytest_runtest_setup(item):
    if DEVICE == "cuda" and "gpu" in item.keywords and not Path("/dev/nvidiactl").exists():
        pytest.skip("no NVIDIA driver on this machine")


def pytest_terminal_summary(terminalreporter):
    if REPORT:
        stats = terminalreporter.stats
        told = {kind: len(stats.get(kind, ())) for kind in ("passed", "failed", "error")}
        skipped = sorted({report.nodeid for report in stats.get("skipped", ())})
        Path(REPORT).write_text(json.dumps({**told, "skipped": skipped, "figures": FIGURES}))


@pytest.fixture
def pair(new_pair):
    """Home and a companion, for a test; files that need other ones have a fixture of this name."""
    made = new_pair()
    made.attach()
    return made


@pytest.fixture
def figure():
    """Give a figure its name in what `make test-gpu` reports."""
    return FIGURES.__setitem__


HERE = Path(__file__).parent
__all__ = ["lazy", "new_halves", "new_pair"]  # fixtures of the other room that carries values
# Small networks: a second thread would only wait for a core that another process has.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A process has one backend, and a companion begins with the environment of the notebook's kernel.
os.environ.setdefault("KERAS_BACKEND", "torch")


@pytest.fixture(scope="module")
def eager():
    """One pair for all tests of a file; what is small travels with every switch."""
    with open_pair() as pair:
        yield pair
