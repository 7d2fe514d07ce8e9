"""Python's garbage collector, while values are looked at."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_waits() -> Iterator[None]:
    """Let no collection begin by itself in the body, which makes many objects and no garbage.

    Each one would look through all the notebook's values: half the time of a pass over many.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
