"""What belongs to the process and not to a variable, one row each."""

from __future__ import annotations

import decimal
import random
import sys
from collections.abc import Callable
from typing import Any


def _numpy() -> Any:
    return sys.modules.get("numpy.random")


def _get_numpy() -> Any:
    return None if _numpy() is None else _numpy().get_state()


def _set_numpy(state: Any) -> None:
    import numpy.random

    numpy.random.set_state(state)


def _set_context(state: Any) -> None:
    decimal.setcontext(state)


#: Name -> how it is read (None: nothing to say), and how it is set.
_ROWS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "random": (random.getstate, random.setstate),
    "numpy.random": (_get_numpy, _set_numpy),
    "decimal": (lambda: decimal.getcontext().copy(), _set_context),
}


def read() -> dict[str, Any]:
    """Return what there is of each row."""
    found = {name: get() for name, (get, _) in _ROWS.items()}
    return {name: value for name, value in found.items() if value is not None}


def apply(state: dict[str, Any]) -> None:
    """Set each row as it is on the other side."""
    for name, value in state.items():
        _ROWS[name][1](value)
