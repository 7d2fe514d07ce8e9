"""What GPU cells came to, and what was raised last: kept beside the GPU until home asks for it."""

from __future__ import annotations

from typing import Any

from gpulease.sides.last_error import last_error
from gpulease.transfer.values.packing.shipment import Shipment
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import LAST_ERROR

from .planning import Wanted, plan

#: A pseudo name under which a cell's result travels; no user name can be spelled like it.
RESULT = "Out[{}]"


class Results:
    """Of many results the oldest go, as in IPython's ``Out``; used under the side's lock."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._kept: dict[int, Any] = {}
        #: Whose objects are whose, by ``id``, and what the side noted then: the same until a cell.
        self._owners: dict[int, tuple[str, ...]] = {}
        self._noted: Any = None

    def keep(self, count: int, result: Any) -> None:
        """Keep what a cell came to."""
        if len(self._kept) >= self._side.settings.results:
            for old in sorted(self._kept)[: max(2, len(self._kept) // 5)]:
                del self._kept[old]
        self._kept[count] = result

    def find(self, count: int) -> Any:
        """Return what a cell came to, or the last error (``LAST_ERROR``); None where it is gone."""
        if count != LAST_ERROR:
            return self._kept.get(count)
        return last_error({name: self._side.ns[name] for name in self._side.names()})

    def name_of(self, value: Any) -> str | None:
        """Return a variable that is bound to this very object, or None."""
        return next((n for n in self._side.names() if self._side.ns[n] is value), None)

    def shipment(self, count: int, value: Any) -> Shipment:
        """Return a shipment of a result and what it needs, and of nothing that is said beside."""
        pseudo = RESULT.format(count)
        self._side.ns[pseudo] = value
        try:
            wanted = Wanted(strict=frozenset({pseudo}))
            names = [pseudo, *self._sharing(pseudo)]
            found = plan(self._side, wanted, names=names, fetch=True)
        finally:
            del self._side.ns[pseudo]
        items = [item.whole(required=True) for item in found.items]
        return Shipment(**{**vars(found), "items": items, "deleted": (), "state": b""})

    def _sharing(self, pseudo: str) -> set[str]:
        """Return the variables that hold a part of a result, or of a class that it needs.

        They travel with it: home would else have that part twice.
        """
        side = self._side
        near = {key for group in side.survey([pseudo]).groups for key in group.inner}
        if not near:
            return set()
        if self._noted is None or self._noted is not side.noted or side.runs_beside():
            groups = side.survey(name for name in side.names() if name != pseudo).groups
            self._owners = {key: group.names for group in groups for key in group.inner}
            self._noted = side.noted
        return {name for key in near & self._owners.keys() for name in self._owners[key]}
