"""Which engine the pairs of these tests run: ``GPULEASE_ENGINE=next`` chooses the second one."""

import os
import pickle

import pytest


def first_alone(exception):
    """Mark what only the first engine does: the second one's contract names this exception."""
    return pytest.mark.skipif(
        os.environ.get("GPULEASE_ENGINE") == "next", reason=f"the first engine alone: {exception}"
    )


def parked_names(path):
    """Return the variables in a parked file."""
    if os.environ.get("GPULEASE_ENGINE") == "next":
        return {name for each in pickle.loads(path.read_bytes()).components for name in each.names}
    from gpulease.transfer.switch.park import read_parked

    roots = {root for group in read_parked(str(path)).groups for root in group.roots}
    return {root[2:] for root in roots if root.startswith("n:")}
