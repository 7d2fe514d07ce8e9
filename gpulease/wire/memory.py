"""Memory that received blobs are written into, and that values may keep.

A large ``bytearray`` is cleared when it is made, page by page, before anything comes to be in it.
This one is not, and lies in huge pages where the system has them, as arrays of numpy do: to touch
1 GiB of new memory takes as long as to copy it several times.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import sys

log = logging.getLogger(__name__)

#: Below this (bytes) there is nothing to win.
_LARGE = 4 * 2**20
_new = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t]


def fresh(size: int) -> bytearray:
    """Return a byte array whose content is undefined: whoever asks writes all of it.

    Raises:
        MemoryError, OverflowError: there is no such memory.
    """
    if size < _LARGE:
        return bytearray(size)
    if size > sys.maxsize // 2:
        raise OverflowError(size)
    memory: bytearray = _new(None, size)
    _advise(memory)
    return memory


def _advise(memory: bytearray) -> None:
    """Ask for huge pages; a system that has none goes on with others."""
    start = ctypes.addressof((ctypes.c_char * 0).from_buffer(memory))
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + len(memory)) // mmap.PAGESIZE * mmap.PAGESIZE
    try:
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        madvise(first, last - first, mmap.MADV_HUGEPAGE)
    except (AttributeError, OSError):
        log.debug("no huge pages here")
