"""Packs something, or says what is in the way: whatever a value's own code raises is a refusal.

Owns the room for recursion and the sentence; the search for the blocker is ``path``'s.
"""

from __future__ import annotations

import dis
import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gpulease.sides.hushed import hushed
from gpulease.transfer.values.groups import AbandonedError
from gpulease.transfer.values.names.deep import LEVELS, is_too_deep, with_room
from gpulease.transfer.values.stays import leaves
from gpulease.transfer_next import path
from gpulease.transfer_next.refuse import RefusedError

_TOO_DEEP = (
    f"nested too deeply to travel (more than {LEVELS:,} levels; a chain of objects that refer to "
    "the next one travels better as a list of them)"
)

#: What Python says of an object of a compiled type that has no way to be pickled.
_UNPICKLED = re.compile(r"cannot pickle '([\w.]+)' object")

_PYTHONS = (TypeError, AttributeError, pickle.PicklingError)

T = TypeVar("T")


def attempt(dump: Callable[[], T], values: Mapping[str, Any]) -> T:
    """Return what ``dump`` returns, with room where it needs it; raises RefusedError.

    Warnings that it gives are nobody's: no cell has asked for it, and in one process nothing is
    pickled at all.
    """
    try:
        with hushed():
            return _with_room(dump)
    except AbandonedError:
        raise
    except RefusedError as error:
        raise RefusedError(path.located(error.kind, values, error.blocker)) from None
    except BaseException as error:  # whatever a value's own way of being pickled raises
        if not isinstance(error, Exception) and not raised_by_code(error):
            raise
        if is_too_deep(error):
            raise RefusedError(_TOO_DEEP) from error
        # Python's own words name a type; what a library says is more than what it may hold.
        found = leaves.blocker(values) if isinstance(error, _PYTHONS) else None
        raise RefusedError(found or _said(error)) from error


def _with_room(dump: Callable[[], T]) -> T:
    try:
        return dump()
    except (RecursionError, pickle.PicklingError) as error:
        if not is_too_deep(error):
            raise
    return with_room(dump)


def raised_by_code(error: BaseException) -> bool:
    """Say whether a ``raise`` was the cause: an interrupt from outside comes at any instruction."""
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return dis.opname[code.co_code[trace.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")


def _said(error: BaseException) -> str:
    unpickled = _UNPICKLED.fullmatch(str(error)) if type(error) is TypeError else None
    if unpickled is not None:
        return f"an object of the type {unpickled[1]}, which Python does not pickle"
    return f"{type(error).__name__}: {_short(error)}"


def _short(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0][:200] if text else "no message"
