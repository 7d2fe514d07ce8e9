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


def references(objects: Mapping[K, Any], keys: Iterable[K] | None = None) -> dict[K, int]:
    """Return how many references to each object there are besides its entry in ``objects``.

    ``keys`` chooses some of them.  Where an object is in ``objects`` twice, the second entry
    counts.
    """
    chosen = objects if keys is None else keys
    return {key: sys.getrefcount(objects[key]) - _OWN for key in chosen}


def counted(objects: list[Any]) -> list[int]:
    """Return how many references to each object there are besides its entry in ``objects``."""
    return list(map(operator.sub, map(sys.getrefcount, objects), itertools.repeat(_OWN_OF_LIST)))


#: The entry itself and what the call adds: of a mapping, and of a list.
_OWN = _OWN_OF_LIST = 0
_OWN = references({0: object()})[0]
_OWN_OF_LIST = counted([object()])[0]
