"""Arrays that keep their identity while others show their memory, taken apart.

Owns what travels of them: of the one that shows all of it the elements, of the others where they
lie in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpulease.transfer.arrays import SharedMemory

from . import array_reduction, tokens


class Elements:
    """Stands in a pickle for the elements of an array; an array would be made over itself."""

    gpulease_stands = True

    def __init__(self, array: Any) -> None:
        self._array = array

    def __reduce__(self) -> Any:
        return array_reduction.own_memory(self._array)


def skeletons(
    pinned: Mapping[str, Any], context: array_reduction.Memory
) -> dict[str, tuple[Any, ...]]:
    """Return by id how those are made, empty, that lie over the memory of another one."""
    shared = context.memory
    found = {oid: obj for oid, obj in pinned.items() if id(obj) in shared.ids}
    return {
        oid: _skeleton(obj, context)
        for oid, obj in found.items()
        if shared.stands_for(obj) is not obj
    }


def _skeleton(array: Any, context: array_reduction.Memory) -> tuple[Any, ...]:
    rebuild, args = array_reduction.reduce(array, context)
    if rebuild is tokens.face:
        args = (*args[:-1], {})  # its attributes are content
    return ("view", rebuild, args)


def contents(pinned: Mapping[str, Any], shared: SharedMemory) -> dict[str, tuple[Any, Any]]:
    """Return by id what is in those of which others show the memory."""
    found = {oid: obj for oid, obj in pinned.items() if id(obj) in shared.ids}
    return {oid: _content(obj, shared.stands_for(obj)) for oid, obj in found.items()}


def _content(array: Any, whole: Any) -> tuple[Any, dict[str, Any] | None]:
    if whole is array:
        return Elements(array), None
    space = getattr(array, "__dict__", None)
    face = array.dtype, array.shape, bool(array.flags.writeable)
    return face, None if space is None else dict(space)
