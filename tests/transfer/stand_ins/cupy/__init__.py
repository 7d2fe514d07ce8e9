"""Stands in for CuPy: what gpulease asks of it, over memory of numpy's, by the names of its API.

It has a GPU in the companion, which is a child of the test's process.
"""

import multiprocessing
import types

import numpy as np

from . import _core  # noqa: F401 - as CuPy itself does


def _device_count():
    if multiprocessing.parent_process() is None:
        raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return 1


class OutOfMemoryError(MemoryError):
    pass


cuda = types.SimpleNamespace(
    runtime=types.SimpleNamespace(getDeviceCount=_device_count),
    memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
)


class ndarray:
    """On a device: numpy does not take it for an array."""

    __array__ = None

    def __init__(self, values):
        _device_count()
        self._values = values

    shape = property(lambda self: self._values.shape)
    dtype = property(lambda self: self._values.dtype)
    flags = property(lambda self: self._values.flags)
    size = property(lambda self: self._values.size)
    nbytes = property(lambda self: self._values.nbytes)

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self._values.__array_interface__["data"][0])

    def get(self, order="C"):
        return np.array(self._values, order=order)

    def tolist(self):
        return self._values.tolist()

    def copy(self):
        return ndarray(self._values.copy())

    def __getitem__(self, key):
        return ndarray(self._values[key])

    def __setitem__(self, key, values):
        self._values[key] = values._values if type(values) is ndarray else values

    def __imul__(self, other):
        self._values *= other
        return self

    def __reduce__(self):
        return asarray, (self._values,)


def asarray(values):
    return ndarray(np.array(values))


def arange(*args):
    return asarray(np.arange(*args))


def empty(shape, dtype=float, order="C"):
    return ndarray(np.empty(shape, dtype, order=order))


def byte_bounds(array):
    return np.lib.array_utils.byte_bounds(array._values)
