"""What home shows of a value that its memory does not hold: all but the large values in it.

It is there while one cell of the notebook runs, and asked for again for each; the variable stays
the GPU's.  What the cell changes of it is refused by name, for it would be lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gpulease.errors import GPULeaseError

from . import sending, shipping
from .api import PackedComponent, Parcel, StageError
from .groups import Component
from .messages import structure_only
from .met import Met
from .peer import Peer
from .side import Side
from .survey import Survey, collector_waits, spread_refusals
from .tables import Counterparts

#: Of the roots of one look: what was shown under a name, whatever that is bound to by now.
_SHOWN = "s:"


class ShowingSide(Side):
    """A side of a pair: what it has of large values, and what it shows where it has not all."""

    def pack_structure(self, name: str) -> Parcel:
        """Return the component of ``name`` and its classes, without large values.

        Raises StageError for what cannot go.
        """
        with collector_waits():
            components = self._survey(rest=self._rested()).components
            only = next((each.roots for each in components if name in each.names), None)
            del components
            if only is None:
                raise StageError(f"{name} is not here")
            label = ", ".join(sorted(root[2:] for root in only if root[0] == "n"))
            survey = self._survey(only, structure_of=label)
            refused = spread_refusals(survey.components, self.ns)
            for each in survey.components:
                if each.names and each.roots in refused:
                    raise StageError(f"{name} cannot be shown: {refused[each.roots]}")
            going = [each for each in survey.components if self._goes(each)]
            met = {oid for each in going for oid in each.classes}
            met |= {root[2:] for each in going for root in each.roots if root[0] == "c"}
            parcel = Parcel([], [], None, {}, frozenset(), frozenset(), {})
            parcel.components = [
                PackedComponent(each.order, each.stream, each.buffers, deep=each.deep)
                for each in going
            ]  # fmt: skip
            parcel.shells = sending.shells(met, self._classes, survey.met)
            return parcel

    def _goes(self, component: Component) -> bool:
        """Say whether a component is what was asked for, or a class that home may not have."""
        if component.error is not None:
            return False
        if all(root[0] == "c" for root in component.roots):
            return component.roots not in self.agreed
        return bool(component.names)

    def load_structure(self, parcel: Parcel) -> dict[str, Any]:
        """Return what is in a parcel by name, which has nothing to do with what is here."""
        staged = self._stage(parcel, Counterparts())
        for array in staged.locked:
            array.flags.writeable = False
        for step in staged.later:
            step(staged.undo)
        return {root[2:]: value for root, value in staged.values.items() if root[0] == "n"}

    def digests(self, values: Mapping[str, Any]) -> dict[frozenset[str], bytes] | None:
        """Return digests of these values by name, None where there is none of some."""
        with collector_waits():
            components = self._look_at({"n:" + n: value for n, value in values.items()})
            if any(each.error is not None for each in components):
                return None
            return {each.roots: each.digest for each in components if each.names}

    def holders(self) -> set[str]:
        """Return the names that lead to a part of what is shown."""
        values = {_SHOWN + name: value for name, value in self.shown.items()}
        values |= {"n:" + n: self.ns[n] for n in self.names() if n in self.ns}
        with collector_waits():
            components = self._look_at(values)
            hit = {root for each in components if _shows(each) for root in each.roots}
            oids = {root[2:] for root in hit if root[0] == "c"}
            hit |= {root for each in components if each.classes & oids for root in each.roots}
        names = {root[2:] for root in hit if root[0] == "n"}
        return {name for name in names if self.ns[name] is not self.shown.get(name)}

    def _look_at(self, values: dict[str, Any]) -> list[Component]:
        met = Met(self.label, self.ns, self._classes, self._others, self._stays)
        met.structure_of = ""
        survey = Survey(met, values, self._roots.known())
        survey.run({})
        return survey.components

    def held_memory(self) -> set[str]:
        """Return the ids of large memory that is here as both sides had it, bound or put aside."""
        return {oid for oid in self._pieces if self._others.get(oid) is not None}

    def forget(self, names: Collection[str]) -> None:
        """The other side has deleted what is away."""
        for name in names:
            self._away.pop(name, None)


class Structures:
    """Home's keeper of what it shows; main thread only."""

    def __init__(self, side: ShowingSide, peer: Peer) -> None:
        self._side = side
        self._peer = peer
        #: What was shown for the cell that runs, with the digest of each component.
        self._digests: dict[frozenset[str], bytes] = {}
        #: What the last cell changed of them, and what it bound to a part of one.
        self._changed: set[str] = set()
        self._kept: set[str] = set()

    def show(self, name: str) -> bool:
        """Bind ``name`` and what belongs together with it to the structure; say if that can be."""
        side = self._side
        if name in side.shown:
            return True
        try:
            reply = self._peer.ask("structure", {"name": name})
            parcel, _ = shipping.decode(reply.blobs)
            found = side.load_structure(parcel)
        except (GPULeaseError, StageError) as error:
            if isinstance(error, GPULeaseError) and error.reason in _ENDS:
                raise
            return False
        away = side.away()
        values = {n: value for n, value in found.items() if n in away and n not in side.ns}
        digests = side.digests(values)
        if digests is None:  # nobody could tell what the cell changes of it
            return False
        side.shown |= values
        side.ns.update(values)
        self._digests |= digests
        return name in values

    def put_away(self) -> None:
        """The cell has ended: take the structures away again, and note what it did with them.

        What else it bound to a part of one goes as well: on the GPU it would be another object.
        """
        side, ns = self._side, self._side.ns
        shown, before = side.shown, self._digests
        if not shown:
            return
        now = side.digests(shown) or {}
        same = {name for name, value in shown.items() if ns.get(name) is value}
        changed = {
            root[2:] for roots, digest in before.items() if now.get(roots) != digest
            for root in roots
        }  # fmt: skip
        self._changed |= changed & same
        kept = side.holders()
        for name in same | kept:
            del ns[name]
        self._kept |= kept
        self._drop([name for name in shown if name not in ns and name not in same])
        side.shown, self._digests = {}, {}

    def _drop(self, names: Iterable[str]) -> None:
        """What the cell deleted is deleted on the GPU as well."""
        gone = sorted(names)
        if gone and self._peer.connected:
            self._peer.ask("drop", {"names": gone})
            self._side.forget(gone)

    def check(self) -> None:
        """Raise once for what was changed of a structure, or kept: it is not taken."""
        self.put_away()
        changed, self._changed = sorted(self._changed), set()
        kept, self._kept = sorted(self._kept), set()
        if not changed and not kept:
            return
        raise structure_only(changed, kept)


_ENDS = ("companion_gone", "transfer_abandoned")


def _shows(component: Component) -> bool:
    return any(root.startswith(_SHOWN) for root in component.roots)
