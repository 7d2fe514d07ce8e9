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
from typing import Any

log = logging.getLogger(__name__)

#: Below this (bytes) there is nothing to win.
_LARGE = 4 * 2**20
_resize = ctypes.pythonapi.PyByteArray_Resize
_resize.argtypes = [ctypes.py_object, ctypes.c_ssize_t]


class OwnedBytes(bytearray):
    """Memory that is its receiver's alone: what is made of it need not copy it."""


def fresh(size: int) -> bytearray:
    """Return a byte array whose content is undefined: whoever asks writes all of it.

    Raises:
        MemoryError, OverflowError: there is no such memory.
    """
    if size < _LARGE:
        return bytearray(size)
    if size > sys.maxsize // 2:
        raise OverflowError(size)
    memory = OwnedBytes()
    _resize(memory, size)
    in_huge_pages(ctypes.addressof((ctypes.c_char * 0).from_buffer(memory)), size)
    return memory


def fresh_each(_body: object, sizes: list[int]) -> list[Any]:
    """Return such memory for each blob of a message."""
    return [fresh(size) for size in sizes]


def in_huge_pages(start: int, size: int) -> None:
    """Ask for huge pages in new memory; a system that has none goes on with others."""
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + size) // mmap.PAGESIZE * mmap.PAGESIZE
    try:
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        madvise(first, last - first, mmap.MADV_HUGEPAGE)
    except (AttributeError, OSError):
        log.debug("no huge pages here")
