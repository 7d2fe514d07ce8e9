"""How many references lead to an object from outside of what the caller knows.

The only place that reads CPython's reference counts.  What a count includes for its own sake
differs between versions of Python (3.14 lends local variables to a call, 3.11 counts them), so it
is measured by a probe when this module is loaded, and callers keep no other reference of their
own: no local variable, no loop over the objects.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

K = TypeVar("K")


def counted(objects: list[Any]) -> list[int]:
    """Return how many references to each object there are besides its entry in ``objects``.

    Where an object is in ``objects`` twice, the second entry counts.
    """
    return list(map(operator.sub, map(sys.getrefcount, objects), itertools.repeat(_OWN)))


def references(objects: Mapping[K, Any], keys: Iterable[K] | None = None) -> dict[K, int]:
    """Return the same for the values of ``objects``, of which ``keys`` chooses some."""
    chosen = list(objects if keys is None else keys)
    counts = counted(list(map(objects.__getitem__, chosen)))
    return dict(zip(chosen, map(operator.sub, counts, itertools.repeat(1)), strict=True))


def _measured() -> int:
    return counted([object()])[0]


#: The entry itself and what the call adds.
_OWN = 0
_OWN = _measured()
