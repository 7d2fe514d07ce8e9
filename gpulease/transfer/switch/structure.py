"""What home shows of a value that its memory does not hold: all but the values.

Owns the structure while one cell of the notebook runs: it is asked for anew for each, and the
variable stays the GPU's.  What the cell changes of it is refused by name, for it would be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.transfer.values.groups import Check, merge, name_root
from gpulease.transfer.values.kinds.units import can_pin
from gpulease.transfer.values.landing.staging import Staging
from gpulease.transfer.values.packing.pickling import Packed
from gpulease.transfer.values.packing.shipment import Incoming, Item, Shipment
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.messages import cannot_move, structure_only
from gpulease.transfer_next.peer import Peer
from gpulease.transfer_next.refuse import RefusedError


def structure_of(side: Side, name: str, check: Check) -> Shipment:
    """Return a shipment of the group of ``name`` without large values, with all that it needs.

    Raises ``cannot_move`` where nothing of it can be left out.
    """
    survey = side.survey(check=check)
    roots = side.closure([name], survey, reads=False)
    groups = {id(g): g for root in roots if (g := survey.by_root.get(root)) is not None}
    try:
        items = [
            Item(
                side.packer.pack(
                    group, survey.units, survey.used_globals, check=check, structure=True
                ),
                required=True,
            )
            for group in groups.values()
        ]
    except RefusedError as error:
        raise cannot_move(name, error.kind, side.place) from None
    return Shipment(items)


@dataclass
class _Shown:
    """One group that is shown: its names with their objects, and its digest."""

    values: dict[str, Any]
    digest: bytes


class Structures:
    """Home's keeper of what it shows; main thread only."""

    def __init__(self, side: Side, peer: Peer) -> None:
        self._side = side
        self._peer = peer
        self._shown: list[_Shown] = []
        #: What the last cell changed of them, and what it bound to a part of one.
        self._changed: list[str] = []
        self._kept: list[str] = []

    def show(self, name: str) -> bool:
        """Bind ``name`` and what belongs together with it to the structure; say if that can be."""
        side = self._side
        try:
            reply = self._peer.ask("structure", {"name": name})
        except GPULeaseError as error:
            if error.reason in ("companion_gone", "transfer_abandoned"):
                raise
            return False
        incoming = Incoming.decode(reply.body, reply.blobs)
        staging = Staging(side.ns, side.registry, incoming.groups, apart=True)
        staging.load()
        if staging.failed:
            staging.release()
            return False
        values: dict[str, Any] = {}
        for loaded in staging.loaded.values():
            loaded.apply()
            values |= {n: v for n, v in loaded.names.items() if n in side.ledger.remote}
        self._know_classes(staging)
        staging.release()
        found = self._packed(values)
        if found is None:  # nobody could tell what the cell changes of it
            return False
        side.ns.update(values)
        self._shown.append(_Shown(values, found.digest))
        return name in values

    def _know_classes(self, staging: Staging) -> None:
        """Let a class that came for the first time be the same one in the next cell, and when it
        comes for itself.
        """
        for oid in staging.fresh:
            unit = staging.units[oid]
            if isinstance(unit, type):
                self._side.registry.bind(oid, unit)

    def put_away(self) -> None:
        """The cell has ended: take the structures away again, and note what it did with them.

        What else it bound to a part of one goes as well: on the GPU it would be another object.
        """
        shown, self._shown = self._shown, []
        ns = self._side.ns
        for each in shown:
            same = [name for name, value in each.values.items() if ns.get(name) is value]
            now = self._packed(each.values)
            if same and (now is None or now.digest != each.digest):
                self._changed += same
            gone = [name for name in each.values if name not in ns]
            for name in same:
                del ns[name]
            self._drop(gone)
        holders = self._holders([each.values for each in shown]) if shown else []
        for name in holders:
            del ns[name]
        self._kept += holders

    def _drop(self, names: list[str]) -> None:
        """What the cell deleted is deleted on the GPU as well."""
        if names and self._peer.connected:
            self._peer.ask("drop", {"names": names})
            for name in names:
                self._side.ledger.remote.pop(name, None)

    def _holders(self, shown: list[dict[str, Any]]) -> list[str]:
        """Return the names that lead to a part of what was shown."""
        side = self._side
        parts: set[int] = set()
        for values in shown:
            for group in side.survey_roots(values, (), values).groups:
                if not group.names:
                    continue
                parts.update(map(id, group.claimed))
                parts.update(key for key, obj in group.inner.items() if can_pin(obj))
        survey = side.survey()
        hit = {r for g in survey.groups if not parts.isdisjoint(g.inner) for r in g.roots}
        names = side.names() if hit else ()
        return [n for n in names if not hit.isdisjoint(side.closure([n], survey, reads=False))]

    def check(self) -> None:
        """Raise once for what was changed of a structure, or kept: it is not taken."""
        self.put_away()
        changed, self._changed = self._changed, []
        kept, self._kept = self._kept, []
        if not changed and not kept:
            return
        raise structure_only(changed, kept)

    def _packed(self, values: dict[str, Any]) -> Packed | None:
        side = self._side
        survey = side.survey_roots(values, (), values)
        parts = {id(g): g for n in values if (g := survey.by_root.get(name_root(n))) is not None}
        try:
            return side.packer.pack(
                merge(parts.values()), survey.units, survey.used_globals, values=values,
                structure=True,
            )  # fmt: skip
        except RefusedError:
            return None
