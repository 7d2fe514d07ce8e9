"""What never moves, and the sentence that says so.

The search finds the object that blocks a value.  A refusal matters only to a cell that needs the
name.
"""

from __future__ import annotations

import collections
import contextvars
import ctypes
import importlib.machinery
import io
import itertools
import mmap
import re
import socket
import sys
import threading
import types
import weakref
from typing import Any

from gpulease.sides.libraries import library, package_of
from gpulease.sides.module_files import module_digest

_CTYPES: Any = ctypes.Array.__mro__[-2]
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_PROBE: dict[int, int] = {}
SET_AND_DICT_ITERATORS: tuple[type, ...] = (
    type(iter(_PROBE)),
    type(iter(_PROBE.values())),
    type(iter(_PROBE.items())),
    type(iter(set())),
    type(reversed(_PROBE)),
    type(reversed(_PROBE.values())),
    type(reversed(_PROBE.items())),
    # Each of these pickles as an iterator over a list of what is left; so would these, of which
    # there is one type for keys, values and items, forwards and backwards.
    type(iter(collections.OrderedDict())),
)
#: Which these are depends on Python: ``batched`` and ``pairwise``, from 3.14 on all.
_UNPICKLED_ITERATORS = tuple(
    kind
    for kind in vars(itertools).values()
    if isinstance(kind, type)
    and kind.__module__ == "itertools"
    and vars(kind).keys().isdisjoint(("__reduce__", "__reduce_ex__"))
)
_KINDS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((types.GeneratorType,), "a generator (its frame cannot leave the process)"),
    ((types.CoroutineType, types.AsyncGeneratorType), "a coroutine"),
    ((types.FrameType, types.TracebackType), "a stack frame"),
    ((socket.socket,), "an open socket"),
    ((io.IOBase,), "an open file"),
    (_LOCKS, "a lock"),
    ((threading.Thread,), "a thread"),
    ((threading.local,), "a thread-local value"),
    ((mmap.mmap,), "a memory map"),
    ((memoryview,), "a memoryview"),
    ((weakref.ref,), "a weak reference"),
    (SET_AND_DICT_ITERATORS, "an iterator over a dict or set"),
    (_UNPICKLED_ITERATORS, "an iterator of itertools that Python does not pickle"),
    (
        (contextvars.ContextVar, contextvars.Token, contextvars.Context),
        "a context variable, a token or a context of such",
    ),
)

#: Alive in one kernel, with a front end or a socket at the other end; by package and class name,
#: as none of these is imported for the look.
_LIVE: dict[tuple[str, str], str] = {
    # Those of ipywidgets 8 travel (``frameworks.ipywidgets``).
    ("ipywidgets", "Widget"): "a widget (it lives where it was made; keep its value in a variable)",
    ("comm", "BaseComm"): "a comm with the notebook's page",
    ("ipykernel", "Kernel"): "the running kernel",
    ("IPython", "InteractiveShell"): "the running kernel",
    # A thread holds the one that it writes errors to, which reaches the event loop and all on it.
    ("ipykernel", "OutStream"): "an output stream of the notebook",
    ("_catboost", "_PoolBase"): "a catboost Pool (make it again from its data where it is used)",
    ("torch", "SummaryWriter"): "a SummaryWriter (it writes where it was made)",
    ("tensorboardX", "SummaryWriter"): "a SummaryWriter (it writes where it was made)",
    ("wandb", "Run"): "a wandb run (it logs from where it was started)",
    ("vllm", "LLM"): "a vLLM engine (it lives on the device that it was started on)",
    ("vllm", "LLMEngine"): "a vLLM engine (it lives on the device that it was started on)",
    ("vllm", "AsyncLLM"): "a vLLM engine (it lives on the device that it was started on)",
    ("zmq", "Socket"): "an open socket",
    ("zmq", "Context"): "an open socket's context",
}
_HASH = "a running hash (take its hexdigest() where it is)"
_DEL = "an object with a __del__ (which runs once, where it was made)"
_COMPRESSION = "a running compression"
#: What holds little but a handle, and what threads share: a copy of it would be nobody's.
_HANDLES: dict[tuple[str, str], str] = {
    ("sqlite3", "Connection"): "a database Connection",
    ("sqlite3", "Cursor"): "a database Cursor",
    ("psycopg", "BaseConnection"): "a database Connection",
    ("psycopg2", "connection"): "a database connection",
    ("psycopg2", "cursor"): "a database cursor",
    ("duckdb", "DuckDBPyConnection"): "a database connection",
    ("_duckdb", "DuckDBPyConnection"): "a database connection",
    # Loggers have one on each side (``log_handlers``): a third would be nobody's.
    ("logging", "StreamHandler"): "a handler of logging",
    ("_queue", "SimpleQueue"): "a queue between threads",
    ("queue", "Queue"): "a queue between threads",
    ("threading", "Event"): "an event between threads",
    ("threading", "Condition"): "a condition between threads",
    ("threading", "Semaphore"): "a semaphore",
    ("threading", "Barrier"): "a barrier between threads",
    ("concurrent", "Executor"): "an executor",
    ("concurrent", "Future"): "a future of an executor",
    ("multiprocessing", "BaseProcess"): "a process",
    ("subprocess", "Popen"): "a process",
    ("multiprocessing", "Pool"): "a pool of processes or threads",
    ("multiprocessing", "BaseManager"): "a manager of processes",
    ("multiprocessing", "BaseProxy"): "a value shared between processes",
    ("multiprocessing", "SynchronizedBase"): "a value shared between processes",
    ("multiprocessing", "SemLock"): "a lock between processes",
    ("multiprocessing", "Condition"): "a lock between processes",
    ("multiprocessing", "Event"): "an event between processes",
    ("multiprocessing", "Queue"): "a queue between processes",
    ("multiprocessing", "SimpleQueue"): "a queue between processes",
    ("multiprocessing", "_ConnectionBase"): "a connection between processes",
    ("selectors", "_BaseSelectorImpl"): "a selector of open files",
    ("select", "epoll"): "a selector of open files",
    ("ssl", "_SSLContext"): "a context of SSL",
    ("_ssl", "_SSLContext"): "a context of SSL",
    ("httpx", "BaseClient"): "a client of HTTP",
    ("sqlalchemy", "Engine"): "a database engine",
    ("sqlalchemy", "Connection"): "a database Connection",
    ("sqlalchemy", "Session"): "a database session",
    ("distributed", "Client"): "a client of dask",
    ("pyspark", "SparkSession"): "a session of Spark",
    ("pyspark", "SparkContext"): "a context of Spark",
    ("zipfile", "ZipFile"): "a ZipFile (open it where it is used)",
    ("h5py", "HLObject"): "a file or dataset of h5py (open it where it is used)",
    ("netCDF4", "Dataset"): "a netCDF4 dataset (open it where it is used)",
    ("posix", "ScandirIterator"): "a running os.scandir",
    ("posix", "DirEntry"): "an entry of os.scandir (keep its path)",
    ("_hashlib", "HASH"): _HASH,
    ("_hashlib", "HMAC"): _HASH,
    ("_blake2", "blake2b"): _HASH,
    ("_blake2", "blake2s"): _HASH,
    ("zlib", "Compress"): _COMPRESSION,
    ("zlib", "Decompress"): _COMPRESSION,
    ("_bz2", "BZ2Compressor"): _COMPRESSION,
    ("_bz2", "BZ2Decompressor"): _COMPRESSION,
    ("_lzma", "LZMACompressor"): _COMPRESSION,
    ("_lzma", "LZMADecompressor"): _COMPRESSION,
    ("_elementtree", "_element_iterator"): "an iterator over elements of XML",
    ("xml", "XMLParser"): "a parser of XML",
    ("xml", "TreeBuilder"): "a parser of XML",
    ("pyexpat", "xmlparser"): "a parser of XML",
    ("_struct", "unpack_iterator"): "a running struct.iter_unpack",
    ("_lsprof", "Profiler"): "a profiler",
    ("pandas", "TextFileReader"): "a reader of chunks (make it again where it is used)",
    ("numpy", "nditer"): "a running nditer",
    ("numpy", "broadcast"): "a running broadcast",
    ("torch", "_BaseDataLoaderIter"): "an iterator of a DataLoader",
    ("_cython", "generator"): "a generator (its frame cannot leave the process)",
    ("_cython", "coroutine"): "a coroutine",
    ("_cython", "async_generator"): "a coroutine",
}
#: Each release of Cython has types of its own, in a module by its number.
_CYTHON = re.compile(r"^_cython_\w+$")
_EXTENSION = "a compiled extension module (load it again where it is used)"
#: What a process knows of itself, and what is known by its address: the other side has its own.
_OF_PROCESS: dict[tuple[str, str], str] = {
    # Its ``__del__`` closes the file, which a copy has not.
    ("numpy", "NpzFile"): "an open archive of numpy (take the arrays that you need out of it)",
    ("keras", "KerasSaveable"): "an object of Keras (take its get_weights() along)",
    ("keras", "Tracker"): "an object of Keras (take its get_weights() along)",
    ("spacy", "Language"): "a pipeline of spaCy (make it where it is used)",
}
#: What people make once and use for long: that it stays where it is, is worth a word.
LASTING = frozenset((
    _EXTENSION,
    *(words for (package, _), words in _LIVE.items()
      if package in ("torch", "tensorboardX", "vllm", "wandb")),
))  # fmt: skip


class RefusedError(Exception):
    """Raised while packing: ``kind`` is what cannot move, in words; ``blocker`` the object."""

    def __init__(self, kind: str, blocker: Any = None) -> None:
        super().__init__(kind)
        self.kind = kind
        self.blocker = blocker


def is_dead(obj: Any) -> bool:
    """Whether this is a proxy of what is gone: then not even its type can be asked for."""
    if type(obj) not in weakref.ProxyTypes:
        return False
    try:
        obj.__class__  # noqa: B018 - a proxy hands the question on
    except ReferenceError:
        return True
    return False


def is_running_shell(obj: Any) -> bool:
    """Whether this is what ``get_ipython()`` gives, which each side has of its own."""
    ipython = library("IPython")
    return ipython is not None and obj is not None and ipython.get_ipython() is obj


def refused_itself(obj: Any) -> str | None:  # noqa: PLR0911 - one line a kind
    """Return in words why ``obj`` never moves, where that is not its type's doing, or None."""
    if type(obj) in (io.StringIO, io.BytesIO):
        return None
    if is_dead(obj):
        return "a weak reference"
    for kinds, words in _KINDS:
        if isinstance(obj, kinds):
            return words
    numpy = library("numpy")
    memmap = getattr(numpy, "memmap", None)
    if memmap is not None and isinstance(obj, memmap) and getattr(obj, "mode", "r") in ("r+", "w+"):
        return "a writable memmap"
    if isinstance(obj, _CTYPES) and (found := _ctypes_kind(obj)) is not None:
        return found
    if type(obj) is types.ModuleType and _is_loaded_from_a_path(obj):
        return _EXTENSION
    return None


def refused_by_type(kind: type) -> str | None:
    """Return in words why no object of this type is packed, or None."""
    return _of_torch(kind) or live_kind(kind) or _listed(kind, _HANDLES)


def refused_kind(obj: Any) -> str | None:
    """Return in words why ``obj`` itself never moves, or None."""
    return refused_itself(obj) or refused_by_type(type(obj))


def kind_of_all(kind: type) -> str | None:
    """Return in words why objects of this type never move, where that is the type's doing."""
    for kinds, words in _KINDS:
        if issubclass(kind, kinds):
            return words
    return refused_by_type(kind)


def kind_that_stays(kind: type) -> str | None:
    """Return in words why objects of this type stay where they are, or None."""
    return _listed(kind, _OF_PROCESS) or _with_del(kind)


def _with_del(kind: type) -> str | None:
    """Of what has a ``__del__`` there is one only: with a second one it would run twice."""
    for base in kind.__mro__:
        if "__del__" in vars(base):
            return _DEL if base.__module__ == "__main__" or module_digest(base.__module__) else None
    return None


def _of_torch(kind: type) -> str | None:
    name = kind.__name__
    known = (kind.__module__ or "").startswith("torch") and name in ("Stream", "CUDAGraph", "Event")
    return f"a torch {name}" if known else None


def _ctypes_kind(obj: Any) -> str | None:
    if isinstance(obj, ctypes.Array):
        return "a ctypes array"
    own = obj._b_base_ is None and obj._b_needsfree_
    return None if own else "a ctypes object over memory of something else"


def live_kind(kind: type) -> str | None:
    """Return in words why no object of this type moves, or None; what it reaches is not looked at:
    a widget reaches its kernel, and that reaches everything.
    """
    return _listed(kind, _LIVE)


def _listed(kind: type, table: dict[tuple[str, str], str]) -> str | None:
    for base in kind.__mro__:
        package = package_of(base)
        words = table.get((_CYTHON.sub("_cython", package), base.__name__))
        if words is not None:
            return words
    return None


def _is_loaded_from_a_path(module: Any) -> bool:
    """Say whether compiled code was loaded under a name that no import finds (torch's
    ``cpp_extension.load``, say).
    """
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    compiled = isinstance(loader, importlib.machinery.ExtensionFileLoader)
    return compiled and sys.modules.get(module.__name__) is not module


class Limit:
    """What may still be packed."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, cost: int) -> None:
        """Count bytes; raises RefusedError where no more are left."""
        self.left -= cost
        if self.left < 0:
            raise RefusedError("more than may be looked at")


class LimitedFile(io.BytesIO):
    """A stream within a limit."""

    def __init__(self, limit: Limit) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: Any, /) -> int:
        """Write what the limit lets pass."""
        self._limit.spend(memoryview(data).nbytes)
        return super().write(data)


class LimitedBuffers(list[Any]):
    """Buffers beside a stream within a limit."""

    def __init__(self, limit: Limit) -> None:
        super().__init__()
        self._limit = limit

    def append(self, buffer: Any, /) -> None:
        """Take what the limit lets pass."""
        self._limit.spend(buffer.raw().nbytes)
        super().append(buffer)
