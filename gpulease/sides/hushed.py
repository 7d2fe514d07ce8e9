"""Hides what imports and a value's own code show while values are packed and while they arrive.

In one process a module is imported once, and shows its messages once; nothing is packed or loaded
there at all.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from gpulease.sides.libraries import library

#: The message that hushed text belongs to: no front end has sent it, so none shows the text.
HUSHED = "gpulease-hushed"
_PARENT = {"msg_id": HUSHED, "msg_type": "gpulease"}


@contextmanager
def hushed() -> Iterator[None]:
    """Show nothing that this thread prints or is warned of meanwhile; no warning is an error.

    Streams and filters stay what they are: a module that keeps ``sys.stderr`` when it is imported
    keeps the real one, and filters that change make Python repeat warnings that it gave before.
    """
    _let_shell_be_found()
    with ExitStack() as stack:
        for stream in (sys.stdout, sys.stderr):
            parent: Any = getattr(stream, "_parent_header", None)  # ipykernel: whose text it is
            if type(parent) is ContextVar:
                stack.callback(parent.reset, parent.set(_PARENT))
        stack.enter_context(_without_warnings())
        yield


def import_quietly(name: str) -> Any:
    """Import a module that a value or a setting needs, and return it."""
    if name in sys.modules:
        return sys.modules[name]
    with hushed():
        return importlib.import_module(name)


def _let_shell_be_found() -> None:
    """Let modules be imported as by a cell: while one runs, IPython gives them ``get_ipython``.

    Without it pandas takes the notebook for a terminal, and shows its frames otherwise.  It stays:
    a thread that took it away again might do so under a running cell.
    """
    ipython = library("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and not hasattr(builtins, "get_ipython"):
        builtins.get_ipython = shell.get_ipython  # type: ignore[attr-defined]


@contextmanager
def _without_warnings() -> Iterator[None]:
    shows, me, over = warnings.showwarning, threading.get_ident(), threading.Event()

    def show(*given: Any, **named: Any) -> None:
        # A module that is imported may keep this as what was there before its own.
        if over.is_set() or threading.get_ident() != me:
            shows(*given, **named)

    warnings.showwarning = show
    try:
        with _no_errors():
            yield
    finally:
        over.set()
        if warnings.showwarning is show:
            warnings.showwarning = shows


@contextmanager
def _no_errors() -> Iterator[None]:
    every: list[Any] = warnings.filters  # type: ignore[assignment]
    lenient = [each for each in every if each[0] != "error"]
    if len(lenient) == len(every):
        yield
        return
    before = list(lenient)
    warnings.filters = lenient
    try:
        yield
    finally:
        if warnings.filters is lenient:  # else what ran meanwhile put other ones in place
            every[:0] = [each for each in lenient if each not in before]
            warnings.filters = every
