"""Which engine the pairs of these tests run: ``GPULEASE_ENGINE=next`` chooses the second one."""

import os

import pytest


def pair_kind():
    """Return the class of pairs: home here, the companion in a process of its own."""
    if os.environ.get("GPULEASE_ENGINE") == "next":
        from tests.transfer_next.pair import NextPair

        return NextPair
    from tests.transfer.pair import Pair

    return Pair


def first_alone(exception):
    """Mark what only the first engine does: the second one's contract names this exception."""
    return pytest.mark.skipif(
        os.environ.get("GPULEASE_ENGINE") == "next", reason=f"the first engine alone: {exception}"
    )
