"""Values whose own way of being packed reads names of the notebook.

What it writes is for who loads it with the same value of the name.  While home is the owner, the
GPU's side still packs by the name as it was: where home has a newer one, the value stays there.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Sequence

from gpulease.sides.names.analysis import code_use

from .groups import Group, Survey, names_of
from .kinds.units import is_unit
from .landing.staging import Arrived, LoadError

_PACKED_BY = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
_OLDER = (
    "it is packed on the GPU by code of its own that reads {0}, of which your notebook has a newer "
    "value; once a GPU cell has read {0}, it can travel"
)


def read_while_packed(survey: Survey, group: Group) -> tuple[str, ...]:
    """Return the names that the notebook's own ways of packing what is in a group read, sorted."""
    kinds = {base for kind in set(map(type, group.inner.values())) for base in kind.__mro__}
    own = [vars(kind).get(name) for kind in kinds if is_unit(kind) for name in _PACKED_BY]
    queue = [each for each in own if type(each) is types.FunctionType]
    names: set[str] = set()
    while queue:
        fresh = code_use(queue.pop().__code__).reads - names
        names |= fresh
        called = (survey.values.get(name) for name in fresh)
        queue += [each for each in called if type(each) is types.FunctionType]
    return tuple(sorted(names & survey.values.keys()))


def packed_by_older(
    groups: Sequence[Arrived],
    coming: Sequence[Arrived],
    here: Collection[str],
    may_bind: Callable[[str], bool],
    is_newer: Callable[[str], bool],
) -> dict[int, LoadError]:
    """Return which of these groups were packed by code that read a name which is newer here.

    They are among those ``coming``: a name of these is newer where it may not be bound.
    """
    read = {name for group in groups for name in group.read if name in here}
    bound = {name for group in coming for name in names_of(group.roots)}
    newer = {n for n in read if (not may_bind(n) if n in bound else is_newer(n))}
    found = {i: newer.intersection(group.read) for i, group in enumerate(groups)}
    return {i: LoadError(_OLDER.format(min(names))) for i, names in found.items() if names}
