"""Where an ``itertools.count`` stands, without a step of it.

Python 3.14 no longer pickles what ``itertools`` makes (https://github.com/python/cpython/issues/101588),
and 3.12 and 3.13 warn where it is asked for.  A counter of numbers says all of its state in its
``repr``.
"""

from __future__ import annotations

import ast
import itertools
from typing import Any


def state_of(counter: itertools.count[Any]) -> tuple[Any, ...]:
    """Return the next number and, where it is not 1, the step.

    Raises ValueError where these are no plain numbers.
    """
    said = repr(counter).removeprefix("count")
    return tuple(ast.literal_eval(f"[{said[1:-1]}]"))
