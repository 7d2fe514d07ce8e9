"""Where no placeholder may stand for what stays where it was made (``leaf_kinds``)."""

from __future__ import annotations

import gc
import itertools
import types
from collections.abc import Collection, Mapping
from typing import Any

from gpulease.transfer import frameworks
from gpulease.transfer.values.groups import Group
from gpulease.transfer_next import locks, path
from gpulease.transfer_next.refuse import RefusedError, refused_kind
from gpulease.transfer_next.stayed import Stayed, leaf_of

from .leaf_kinds import leaf_kind, may_be, stays, travelling

__all__ = ["leaf_kind", "may_be", "stays"]  # passed on

travelling.append(lambda kind: frameworks.of(kind) is not None)


def blocker(values: Mapping[str, Any]) -> str | None:
    """Return what is in the way in these values, in words; a leaf, where nothing else is found."""
    found = path.blocker(values, lambda obj: _is_refused(obj) and leaf_kind(obj) is None)
    return found or path.blocker(values, _is_refused)


def _is_refused(obj: Any) -> bool:
    return type(obj) is not Stayed and not locks.is_free(obj) and refused_kind(obj) is not None


def refuse_unsafe(group: Group, found_leaves: Collection[Any], values: Mapping[str, Any]) -> None:
    """Raise RefusedError where code of a value's would meet what stands for a leaf.

    A ``__del__`` that runs where the leaf is not cannot close the file, say; an own way of being
    loaded may ask the leaf for something, or use the very one when it comes home.
    """
    wanted = set(map(id, found_leaves))
    for obj in group.inner.values():
        if not _runs_code(type(obj)):
            continue
        found = _reached(obj, group.inner, wanted)
        if found is not None:
            kind = leaf_of(found).kind if type(found) is Stayed else leaf_kind(found)
            raise RefusedError(path.located(kind or "", values, found), None)


def _runs_code(kind: type) -> bool:
    return (
        kind in _ASKING
        or hasattr(kind, "__del__")
        or any(
            type(vars(base).get(name)) is types.FunctionType
            for base in kind.__mro__
            if (base.__module__ or "") not in _HARMLESS
            for name in _OWN_WAYS
        )
    )


#: Python's iterators that ask what they are over for an iterator whenever one is made.
_ASKING = frozenset({zip, map, filter, enumerate}).union(
    getattr(itertools, name)
    for name in ("accumulate", "compress", "cycle", "dropwhile", "filterfalse", "groupby",
                 "islice", "pairwise", "starmap", "takewhile", "zip_longest")
)  # fmt: skip
_OWN_WAYS = ("__reduce__", "__reduce_ex__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
#: Whose own ways of being loaded ask nothing of what they get.
_HARMLESS = frozenset({"torch.nn.modules.module", "torch.optim.optimizer", "sklearn.base"})


def _reached(obj: Any, inner: Mapping[int, Any], wanted: Collection[int]) -> Any:
    """Return one of the ``wanted`` that an object leads to within its group, or None."""
    seen = {id(obj)}
    frontier = [obj]
    while frontier:
        found = gc.get_referents(*frontier)
        for each in found:
            if id(each) in wanted:
                return each
        fresh = {id(o): o for o in found if id(o) not in seen and _goes_on(o, inner)}
        seen |= fresh.keys()
        frontier = list(fresh.values())
    return None


def _goes_on(obj: Any, inner: Mapping[int, Any]) -> bool:
    return id(obj) in inner or type(obj) in (dict, tuple)
