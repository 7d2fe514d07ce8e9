"""Stands in for cuDF: frames and series over pandas', which are not pandas'."""

import cupy
import pandas as pd

from . import core  # noqa: F401 - as cuDF itself does


class _Over:
    def __init__(self, values):
        cupy.cuda.runtime.getDeviceCount()
        self._values = values

    def to_pandas(self):
        return self._values.copy()

    def __reduce_ex__(self, protocol):
        return type(self), (self._values,)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._values, name)

    def __setitem__(self, key, value):
        self._values[key] = value


class DataFrame(_Over):
    def __init__(self, values=None):
        super().__init__(pd.DataFrame(values))


class Series(_Over):
    pass


def from_pandas(values):
    return DataFrame(values) if isinstance(values, pd.DataFrame) else Series(values)
