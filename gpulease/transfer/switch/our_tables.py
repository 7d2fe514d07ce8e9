"""How often what gpulease's own tables alone hold refers to an object.

The registry holds for a while what cannot be referred to weakly, and closures that came along with
what they share: what nobody else can reach any more keeps nothing in a way that a person notices.
"""

from __future__ import annotations

import builtins
import gc
import types
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from gpulease.sides.looks import is_a
from gpulease.transfer.registry import Registry
from gpulease.transfer.values.groups import ATOMIC
from gpulease.transfer_next.references import references

#: Of more objects than these nobody counts who refers to them.
_LIMIT = 20_000
_CUT = (type, types.ModuleType)


def references_of_ours(
    olds: Mapping[str, Any], registry: Registry, spaces: Collection[Any]
) -> dict[str, int]:
    """Return how often each is referred to from what only the registry leads to.

    ``spaces`` are namespaces and tables that are the notebook's.
    """
    tables = registry.borrowed.tables()
    cut = {id(space) for space in (*spaces, olds)}
    inner = _within(tables, cut)
    if inner is None:
        return dict.fromkeys(olds, 0)
    ours = _ours_alone(tables, inner)
    count = Counter(map(id, gc.get_referents(*ours)))
    return {name: count[id(old)] for name, old in olds.items()}


def _within(tables: list[Any], cut: set[int]) -> dict[int, Any] | None:
    """Return by ``id`` all that the tables lead to; None: too much."""
    inner: dict[int, Any] = {}
    frontier = tables
    while frontier:
        found = gc.get_referents(*frontier)
        inner |= (fresh := {id(o): o for o in found if id(o) not in inner and _leads(o, cut)})
        if len(inner) > _LIMIT:
            return None
        frontier = list(fresh.values())
    return inner


def _leads(obj: Any, cut: set[int]) -> bool:
    if type(obj) in ATOMIC or is_a(obj, _CUT) or id(obj) in cut:
        return False
    if type(obj) is dict:  # the globals of a function are no part of it
        return "__builtins__" not in obj and obj is not vars(builtins)
    return True


def _ours_alone(tables: list[Any], inner: dict[int, Any]) -> list[Any]:
    """Return of ``inner`` what nothing else refers to, and the tables themselves."""
    known = Counter(map(id, gc.get_referents(*tables, *inner.values())))
    counts = references(inner)
    others = [obj for key, obj in inner.items() if counts[key] > known[key]]
    reached: set[int] = set()
    while others:
        reached.update(map(id, others))
        found = {id(o): o for o in gc.get_referents(*others)}
        others = [o for key, o in found.items() if key in inner and key not in reached]
    return [*tables, *(obj for key, obj in inner.items() if key not in reached)]
