"""Warnings of a library in calls that gpulease alone makes: no cell is their cause."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: As ``warnings.simplefilter("ignore")`` makes it.
_IGNORE_ALL: Final = [("ignore", None, Warning, None, 0)]


@contextmanager
def unsaid() -> Iterator[None]:
    """Ignore every warning meanwhile, also where the notebook has made errors of them.

    Python is not told that there are other filters, as ``catch_warnings`` would: it would then show
    once more what it had shown once (https://github.com/python/cpython/issues/73858).
    """
    filters = warnings.filters
    warnings.filters = _IGNORE_ALL
    try:
        yield
    finally:
        warnings.filters = filters
