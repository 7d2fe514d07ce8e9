"""Files that travel: closed ones, and those that each process has of its own.

A closed file, as ``with open(...) as f`` leaves it, travels as its name, mode and encoding.
``sys.stdout`` and its kin become the other side's own.  An open file never travels.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

_STREAMS = ("stdout", "stderr", "stdin")
_KINDS = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)


def standard_name(obj: Any) -> str | None:
    """Return the name of ``obj`` in ``sys`` if it is one of the three streams, else None."""
    return next((name for name in _STREAMS if getattr(sys, name) is obj), None)


def standard_stream(name: str) -> Any:
    """Return this side's stream of this name."""
    return getattr(sys, name)


def is_closed_file(obj: Any) -> bool:
    """Say whether ``obj`` is a file of Python's own, and closed."""
    return type(obj) in _KINDS and bool(obj.closed)


def reduce_closed(obj: Any) -> Any:
    """Reduce a closed file to what can still be asked of it."""
    mode = str(getattr(obj, "mode", "r"))
    name = getattr(obj, "name", "")
    encoding = getattr(obj, "encoding", None)
    errors = getattr(obj, "errors", None)
    return closed_file, (type(obj).__name__, name, mode, encoding, errors)


def closed_file(kind: str, name: Any, mode: str, encoding: str | None, errors: str | None) -> Any:
    """Return a closed file of this kind; nothing is opened but the null device."""
    raw: Any = io.FileIO(os.devnull, "".join(c for c in mode if c in "rwa+") or "w")
    raw.name = name
    made: Any = raw
    if kind != "FileIO":
        both = raw.readable() and raw.writable()
        one = io.BufferedReader if raw.readable() else io.BufferedWriter
        made = (io.BufferedRandom if both else one)(raw)
    if kind == "TextIOWrapper":
        made = io.TextIOWrapper(made, encoding=encoding, errors=errors)
        made.mode = mode
    made.close()
    return made
