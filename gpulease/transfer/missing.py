"""Home's values that are not bound: older ones put aside, what is lost, what is in conflict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.sides.looks import is_a
from gpulease.sides.names.analysis import Use
from gpulease.sizes import size_text

from .api import Absent, Note, Parcel, Place, VariableStatus
from .messages import Lost, away_note, loss_notes, not_recovered, sealed_note
from .refuse import LASTING
from .roots import is_variable
from .shipping import leave_out, with_their_classes
from .side import Side
from .stayed import Stayed, leaf_of, sentence, type_name

_CONFLICTED = "it was changed on both sides at the same time"


@dataclass
class Missing:
    """Main thread only."""

    side: Side
    large: Large
    #: The value of before, of names whose newest is not here.
    aside: dict[str, Any] = field(default_factory=dict)
    lost: dict[str, Lost] = field(default_factory=dict)
    #: Home's value of names that both sides changed.
    conflicts: dict[str, Any] = field(default_factory=dict)
    #: Of each, the names that share objects with it.
    together: dict[str, set[str]] = field(default_factory=dict)
    #: Of a name that is away: the cell that changed it, and the one after which it was here last.
    made: dict[str, int] = field(default_factory=dict)
    whole: dict[str, int] = field(default_factory=dict)
    #: The cell whose changes came last.
    seen: int = 0

    # ---- what arrives

    def part(self, parcel: Parcel, changed: Collection[frozenset[str]]) -> set[str]:
        """Home's code ran meanwhile: leave out of a parcel what that changed, too.

        Return the roots of which neither side takes the other's.
        """
        theirs = [frozenset(each.roots) | {f"p:{pin}" for pin in each.filled}
                  for each in parcel.components]  # fmt: skip
        theirs += [frozenset({f"n:{name}"}) for name in {*parcel.away, *self._deleted(parcel)}]
        both: set[str] = set()
        for mine in changed:
            met = [each for each in theirs if not mine.isdisjoint(each)]
            if met:
                group = set(mine.union(*met))
                with_their_classes(parcel, group)
                self._put_in_conflict({root[2:] for root in group if root[0] == "n"})
                both |= group
        leave_out(parcel, both, _CONFLICTED)
        if parcel.names is not None:
            kept = {root[2:] for roots in changed for root in roots - both if root[0] == "n"}
            parcel.names += sorted(kept.difference(parcel.names))
        return both

    def _deleted(self, parcel: Parcel) -> set[str]:
        """Return the names that both sides had, and that a GPU cell has deleted."""
        had = {root[2:] for roots in self.side.agreed for root in roots if root[0] == "n"}
        return had.difference(parcel.names or had, parcel.yours)

    def _put_in_conflict(self, names: set[str]) -> None:
        for name in names & self.side.ns.keys():
            self.conflicts[name] = self.side.ns[name]
            self.together[name] = names

    def settle(self, name: str) -> dict[str, Any]:
        """End the conflict of a name and of what shares objects with it; return home's values."""
        names = self.together.pop(name, {name}) & self.conflicts.keys()
        return {each: self.conflicts.pop(each) for each in names}

    def committed(self, before: Mapping[str, Any], cell: int) -> None:
        """A parcel was committed over these values."""
        away, stayed = self.side.away(), self.stayed()
        for name in away:
            if name in before:
                self.aside[name] = before[name]
                self.made[name] = cell
                self.whole.setdefault(name, self.seen)
        for name in (*away, *stayed):
            self.made.setdefault(name, cell)
        for name in self.side.ns.keys() - away.keys() - stayed.keys():
            for table in (self.aside, self.lost, self.made, self.whole):
                table.pop(name, None)
        self.seen = cell

    def rebound(self) -> None:
        """Home's code ran: names that it bound are neither lost nor in conflict any more."""
        for table in (self.lost, self.conflicts, self.aside):
            for name in table.keys() & self.side.ns.keys():
                del table[name]

    def stayed(self) -> dict[str, Absent]:
        """Return the names whose very value is the companion's: what stands for it is bound."""
        found = ((name, self.side.ns[name]) for name in self.side.names() if name in self.side.ns)
        leaves = {name: leaf_of(value) for name, value in found if is_a(value, Stayed)}
        return {
            name: Absent(leaf.kind, can_come=False)
            for name, leaf in leaves.items()
            if not leaf.oid.startswith("h")
        }

    # ---- loss

    def unbind_stayed(self) -> dict[str, Absent]:
        """Unbind what the companion takes with it, and return it."""
        gone = self.stayed()
        for name in gone:
            del self.side.ns[name]
        return gone

    def died(self, gone: Mapping[str, Absent], running: Use | None, cell: str) -> list[Note]:
        """The companion is gone with these, and with what the running cell has changed."""
        ns = self.side.ns
        died = {name: Lost(str(self.made.get(name) or cell)) for name in gone}
        use = running or Use()
        for name in (use.changes - use.imports) & ns.keys() - gone.keys():
            if name in use.writes or not _is_imported(ns[name]):
                died[name] = Lost(cell)
        died |= {name: Lost(cell) for name in use.writes - use.imports - ns.keys() - gone.keys()}
        mine = self._keep_mine()
        for name in died.keys() & mine.keys():
            del died[name]
        for name in died:
            if name in ns:
                self.aside[name] = ns.pop(name)
        self.lost.update(died)
        return [*mine.values(), *loss_notes(died, self.aside)]

    def left(self, gone: Mapping[str, Absent], lost: Collection[str]) -> list[Note]:
        """The companion ended in good order: these are parked, except the ``lost`` ones."""
        mine = self._keep_mine()
        left = {n: Lost(str(self.made.get(n) or ""), parked=n not in lost)
                for n in gone.keys() - mine.keys()}  # fmt: skip
        self.lost.update(left)
        return [*mine.values(), *loss_notes(left, self.aside)]

    def _keep_mine(self) -> dict[str, Note]:
        """The companion ended: what was in conflict has home's value."""
        mine = {name: mine_note(name) for name in sorted(self.conflicts)}
        self.side.ns.update(self.conflicts)
        self.conflicts.clear()
        self.together.clear()
        return mine

    def parked(self, found: Mapping[str, Absent]) -> dict[str, Absent]:
        """Return what of this a new companion has read from a file, and home waits for."""
        return {n: each for n, each in found.items() if n in self.lost and n not in self.side.ns}

    def unparked(self, failed: Mapping[str, str]) -> list[Note]:
        """What was parked and is away again is not lost any more; the other values are."""
        for name in self.lost.keys() & self.side.away().keys():
            del self.lost[name]
        gone = {name: each for name, each in self.lost.items() if each.parked}
        for name, each in gone.items():
            why = failed.get(name, "it was not found there any more")
            self.lost[name] = Lost(each.cell, why=why)
        return loss_notes({n: self.lost[n] for n in gone if n not in self.side.ns}, self.aside)

    def recover(self, names: Sequence[str]) -> tuple[list[str], list[Note]]:
        """Bind the older values of lost names, of all where none is named."""
        asked = dict.fromkeys(names or self.lost)
        found = [name for name in asked if name in self.lost and name in self.aside]
        for name in found:
            self.side.ns[name] = self.aside.pop(name)
            del self.lost[name]
        return found, [
            not_recovered(name, self.lost.get(name)) for name in asked if name not in found
        ]

    # ---- words

    def let_delete(self, names: Collection[str]) -> None:
        """Let a cell delete names that are not here: they need not come for it."""
        ns = self.side.ns
        known = {*self.lost, *self.conflicts, *self.side.away()}
        if all(name in ns or name in known for name in names):
            for name in names:
                if name not in ns:
                    ns[name] = None
                    for table in (self.lost, self.aside, self.conflicts):
                        table.pop(name, None)

    def check(self, names: Collection[str]) -> None:
        """Raise for what is lost or in conflict and was not bound again."""
        for name in sorted(names):
            if name not in self.side.ns and (name in self.lost or name in self.conflicts):
                note = self.explain(name)
                assert note is not None
                raise GPULeaseError(note.reason, note.sentence)

    def explain(self, name: str) -> Note | None:
        """Say why a name is not here, or None."""
        if name in self.side.ns:
            return None
        if name in self.conflicts:
            return conflict_note(name)
        if name in self.lost:
            return self.lost[name].note(name, older=name in self.aside)
        away = self.side.away().get(name)
        if away is None:
            return None
        if away.is_sealed:
            return sealed_note(name, away.reason)
        return away_note(name, away.type_name, away.size, self.large.why(away))

    def rows(self, *, verified: bool) -> list[VariableStatus]:
        """Return a row for every variable, sorted."""
        agreed = {root for roots in self.side.agreed for root in roots}
        found = (*self._here(agreed, verified=verified), *self._away(agreed))
        rows = {row.name: row for row in found}
        for name, lost in self.lost.items():
            if name not in self.side.ns:
                place = Place.PARKED if lost.parked else Place.LOST
                rows[name] = VariableStatus(name, "", place, None, True)
        return [rows[name] for name in sorted(rows)]

    def _here(self, agreed: Collection[str], *, verified: bool) -> Iterator[VariableStatus]:
        found = {root[2:]: roots for roots in self.side.sizes for root in roots if root[0] == "n"}
        for name in self.side.names():
            if name in self.side.ns:
                value, roots = self.side.ns[name], found.get(name, frozenset())
                names = [root[2:] for root in roots if root[0] == "n" and is_variable(root[2:])]
                first = min(names, default=name)
                shared = first if first != name else ""
                size = self.side.sizes.get(roots) if not shared else None
                is_both = "n:" + name in agreed
                place, blocker = (Place.BOTH if is_both else Place.HOME), ""
                if is_a(value, Stayed):
                    place, blocker = Place.GPU, sentence(value)
                kind = type_name(value)
                yield VariableStatus(name, kind, place, size, is_both and verified, blocker, shared)

    def _away(self, agreed: Collection[str]) -> Iterator[VariableStatus]:
        for name, each in self.side.away().items():
            if is_variable(name):
                if name in self.conflicts:
                    place = Place.CONFLICTED
                elif not each.is_sealed:
                    place = Place.GPU
                else:
                    place = Place.BOTH if "n:" + name in agreed else Place.HOME
                yield VariableStatus(
                    name, each.type_name, place, each.size, True, self.large.why(each),
                    older=self.whole.get(name) or None,
                )  # fmt: skip


def conflict_note(name: str) -> Note:
    """Say that both sides have changed a name, and what to do."""
    sentence = (
        f"{name} was changed in your notebook and by a GPU cell at the same time; neither is used. "
        f"Choose with %gpu resolve {name} home or %gpu resolve {name} gpu."
    )
    return Note("conflicted", sentence, (name,))


def mine_note(name: str) -> Note:
    """Say that a conflict ended with the companion."""
    sentence = (
        f"{name} was changed in your notebook and by a GPU cell at the same time. The companion "
        f"has ended, and {name} has your notebook's value."
    )
    return Note("conflicted", sentence, (name,))


def _is_imported(value: Any) -> bool:
    """Say whether a value is a module's, the same on both sides: a cell that dies takes none."""
    if is_a(value, ModuleType):
        return True
    is_code = is_a(value, type | FunctionType | BuiltinFunctionType)
    return is_code and getattr(value, "__module__", None) != "__main__"


class Large:
    """Home's judge of sizes; ``room`` gives the bytes that one value may have here."""

    def __init__(self, room: Callable[[], int]) -> None:
        self._room = room
        self.park_limit = 0
        self._told: set[tuple[str, ...]] = set()
        self._told_lasting: set[str] = set()

    def why(self, away: Absent) -> str:
        """Return why a value is not here: its kind, or its size; "" for one that can come."""
        if not away.can_come:
            return away.reason
        room = self._room()
        if not away.size or away.size <= room:
            return ""
        first = f"Too large for your notebook's memory ({size_text(max(0, room))} fit)"
        if away.size <= self.park_limit:
            return f"{first}: it stays on the GPU and is parked when the lease ends."
        return (
            f"{first} and for what may be parked ({size_text(self.park_limit)}): it is on the GPU "
            "only, and lost when the lease ends. Save it to a file in a GPU cell."
        )

    def notes(self, away: Mapping[str, Absent], stays: Mapping[str, Absent]) -> list[Note]:
        """Return what is to be said of values that stay there since the last call."""
        return [*self._too_large(away), *self._lasting(stays)]

    def _lasting(self, stays: Mapping[str, Absent]) -> list[Note]:
        kinds = {name: a.reason for name, a in sorted(stays.items()) if a.reason in LASTING}
        told, self._told_lasting = self._told_lasting, set(kinds)
        return [
            Note("stays", f"{name} stays on the GPU: it is {kind}.", (name,))
            for name, kind in kinds.items()
            if name not in told
        ]

    def _too_large(self, away: Mapping[str, Absent]) -> list[Note]:
        found: dict[tuple[int, str], list[str]] = {}
        for name, each in sorted(away.items()):
            if each.can_come and each.size and (why := self.why(each)):
                found.setdefault((each.size, why), []).append(name)
        told, self._told = self._told, {tuple(names) for names in found.values()}
        return [
            Note("too_large", f"{', '.join(names)} ({size_text(size)}): {why}", tuple(names))
            for (size, why), names in found.items()
            if tuple(names) not in told
        ]
