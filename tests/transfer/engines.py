"""Which engine the pairs of these tests run: ``GPULEASE_ENGINE=next`` chooses the second one."""

import os
import pickle

import pytest


def is_second():
    """Say whether the second engine is under test."""
    return os.environ.get("GPULEASE_ENGINE") == "next"


@pytest.fixture(autouse=True)
def second_alone(monkeypatch):
    """Run what imports this on the second engine: the first one promised something else."""
    monkeypatch.setenv("GPULEASE_ENGINE", "next")


def first_alone(exception):
    """Mark what only the first engine does: the second one's contract names this exception."""
    return pytest.mark.skipif(is_second(), reason=f"the first engine alone: {exception}")


def parked_names(path):
    """Return the variables in a parked file."""
    if is_second():
        return {name for each in pickle.loads(path.read_bytes()).components for name in each.names}
    from gpulease.transfer.switch.park import read_parked

    roots = {root for group in read_parked(str(path)).groups for root in group.roots}
    return {root[2:] for root in roots if root.startswith("n:")}
