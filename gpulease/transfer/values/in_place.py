"""Which objects of a group may get a new content where they are.

Owns what is in the way: an object that is a part of another one, or memory that others show of
which none shows all.  Where an array shows all of it, the elements are put into that one, and what
else shows them is made over it.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpulease.transfer.arrays import buffer_owner, shared_by
from gpulease.transfer.registry import Registry
from gpulease.transfer.values.kinds.array_reduction import whole_of
from gpulease.transfer.values.kinds.arrays_in_place import is_array
from gpulease.transfer.values.kinds.units import can_pin, own_space
from gpulease.transfer_next.addresses import byte_bounds

if TYPE_CHECKING:
    from .groups import Group

PLAIN = frozenset({list, dict, tuple, set, frozenset, bytearray})


def spaces_of(group: Group) -> dict[int, Any]:
    """Return by id the instances' own attribute dictionaries: they are part of the instance."""
    spaces = (own_space(obj) for obj in group.inner.values() if type(obj) not in PLAIN)
    return {id(space): space for space in spaces if space is not None}


class Places:
    """Says it of one group's objects; ``spaces`` are those of ``spaces_of``."""

    def __init__(self, group: Group, spaces: Mapping[int, Any], registry: Registry) -> None:
        self._inner = group.inner
        self._memory = shared_by(
            group.arrays, group.inner.values(), registry.knows, faces=group.faces
        )
        never = spaces.keys() | set(map(id, map(buffer_owner, group.arrays)))
        self._never = never.union(_viewed(group.arrays), map(id, group.shown), _shown(group))

    @property
    def beneath(self) -> list[Any]:
        """Arrays that arrays of the group are views of, and to which nothing else here leads."""
        return [o for o in self._memory.stands if is_array(o) and id(o) not in self._inner]

    @property
    def wholes(self) -> Iterator[int]:
        """The ids of arrays whose memory others show, once for each reference to it here."""
        return map(id, self._memory.stands)

    def can(self, obj: Any) -> bool:
        """Say whether an object of the group may get a new content."""
        if id(obj) in self._never:
            return False
        if id(obj) not in self._memory.ids:
            return can_pin(obj)
        whole = self._stands_for(obj)
        able = whole is not None and id(whole) not in self._never and can_pin(whole)
        return able and is_array(obj)

    def whole(self, obj: Any) -> Any:
        """Return the array over whose memory another one is made, or None."""
        if id(obj) not in self._memory.ids:
            return None
        whole = self._stands_for(obj)
        return None if whole is obj else whole

    def _stands_for(self, obj: Any) -> Any:
        """Return the array that shows all of the memory that one shows, or None."""
        stands = self._memory.stands_for(obj)
        return stands if is_array(stands) else None


def _shown(group: Group) -> set[int]:
    """Return the arrays, by id, whose memory an object of a framework shows as well."""
    if not group.spans:
        return set()
    spans = sorted(group.spans)
    ends = list(itertools.accumulate((high for _, high in spans), max))

    def is_met(array: Any) -> bool:
        low, high = byte_bounds(array)
        before = bisect.bisect_left(spans, (high,))
        return before > 0 and ends[before - 1] > low

    return {id(a) for a in group.arrays if a.size and is_met(a)}


def _viewed(arrays: list[Any]) -> set[int]:
    """Return the arrays of objects, by id, that others of these are views of."""
    wholes = ((whole_of(a), a) for a in arrays if a.dtype.hasobject)
    return {id(whole) for whole, array in wholes if whole is not array}
