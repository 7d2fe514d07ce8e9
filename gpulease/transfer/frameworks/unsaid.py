"""Warnings of a library in calls that gpulease alone makes: no cell is their cause."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unsaid() -> Iterator[None]:
    """Show no warning meanwhile.

    The filters stay: after a change of them, Python shows once more what it had shown once
    (https://github.com/python/cpython/issues/73858).
    """
    shown = warnings.showwarning
    warnings.showwarning = lambda *_args, **_more: None
    try:
        yield
    finally:
        warnings.showwarning = shown
