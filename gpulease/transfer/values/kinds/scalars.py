"""Libraries' own numbers, dates and durations: they never change and refer to nothing that does."""

from __future__ import annotations

import datetime

from gpulease.sides.libraries import library

from .units import is_unit

_TIMES = (datetime.date, datetime.time, datetime.timedelta)


def is_scalar(kind: type) -> bool:
    """Say whether objects of this type are such: numpy's numbers, pandas' points in time."""
    numpy = library("numpy")
    if numpy is not None and issubclass(kind, numpy.generic):
        return kind in numpy.ScalarType and kind is not numpy.void
    return issubclass(kind, _TIMES) and not is_unit(kind)
