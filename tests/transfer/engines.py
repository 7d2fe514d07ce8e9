"""Which engine the pairs of these tests run: ``GPULEASE_ENGINE=next`` chooses the second one."""

import os


def pair_kind():
    """Return the class of pairs: home here, the companion in a process of its own."""
    if os.environ.get("GPULEASE_ENGINE") == "next":
        from tests.transfer_next.pair import NextPair

        return NextPair
    from tests.transfer.pair import Pair

    return Pair
