"""Values that are not simply here or there: put aside, in doubt, lost, in conflict, parked.

Owns what home keeps back so that nothing old is read in place of something new, and the sentences
that say so.  It moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpulease.errors import GPULeaseError

from .analysis import Use
from .api import Note, Place, VariableStatus
from .groups import merge, name_root
from .ledger import Absent
from .refuse import RefusedError
from .shipment import Incoming, Outcome
from .side import Side
from .staging import Staging
from .variables import is_user_name


@dataclass(frozen=True)
class Lost:
    """A name whose newest value died with the companion; ``cell`` made it."""

    cell: str
    parked: bool = False
    partial: bool = False


class Custody:
    """Home's keeper of values that are not in the namespace."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.aside: dict[str, Any] = {}
        self.doubtful: set[str] = set()
        self.lost: dict[str, Lost] = {}
        self.conflicts: dict[str, frozenset[str]] = {}
        self._epochs: dict[int, set[str]] = {}
        self._bound_at_switch: dict[str, int] = {}

    # ---- removal and return

    def put_aside(self, name: str, value: Any) -> None:
        """Keep the older value of a name that is removed, for a recovery."""
        self.aside[name] = value

    def handed_over(self) -> None:
        """The companion owns the namespace now: bindings here are what they are until it ends."""
        self._bound_at_switch = {name: id(value) for name, value in list(self._side.ns.items())}

    def taken_back(self) -> None:
        """Home owns the namespace: whatever is bound here from now on is home's."""
        self._bound_at_switch = {}

    def may_bind(self, name: str) -> bool:
        """A name bound at home since the switch is home's: what arrives for it is not bound."""
        if name in self.conflicts:
            return False
        if name not in self._side.ns or name_root(name) in self._side.ledger.base:
            return True
        return self._bound_at_switch.get(name) == id(self._side.ns[name])

    def rebound(self) -> None:
        """Names bound anew at home are neither lost nor in conflict any more."""
        for name in [n for n in (*self.conflicts, *self.lost) if n in self._side.ns]:
            self.conflicts.pop(name, None)
            self.lost.pop(name, None)
        for name in [n for n in self.aside if n in self._side.ns]:
            del self.aside[name]

    def doubt(self, names: Iterable[str]) -> None:
        """Take names away that a GPU cell may have changed, until that is known."""
        side = self._side
        for name in names:
            if name in side.ns:
                value = side.ns.pop(name)
                self.aside[name] = value
                self.doubtful.add(name)
                side.ledger.remote[name] = Absent(type(value).__name__, sure=False)

    def committed(self, incoming: Incoming, outcome: Outcome) -> None:
        """After a commit: give back what proved unchanged, forget what is replaced."""
        if not outcome.ok:
            return
        side = self._side
        for name in incoming.same:
            if name in self.doubtful and name in self.aside:
                side.ns[name] = self.aside.pop(name)
                side.ledger.remote.pop(name, None)
        self.doubtful -= set(incoming.same)
        arrived = {r[2:] for g in incoming.groups for r in g.roots if r.startswith("n:")}
        for name in (*arrived, *incoming.deleted):
            self.doubtful.discard(name)
            if name in side.ns or name in incoming.deleted:
                self.aside.pop(name, None)
                self.lost.pop(name, None)
        self.doubtful -= set(incoming.absent)
        self._remember_epochs(incoming, arrived)

    def _remember_epochs(self, incoming: Incoming, arrived: set[str]) -> None:
        """Names one cell changed belong together until all of them are home."""
        for name, absent in incoming.absent.items():
            if absent.cell is not None:
                self._epochs.setdefault(absent.cell, set()).update({name} | arrived)
        waiting = self._side.ledger.remote
        self._epochs = {c: names for c, names in self._epochs.items() if names & waiting.keys()}

    # ---- conflicts

    def find_conflicts(self, staging: Staging) -> set[int]:
        """Return indices of arrived groups whose home value was changed as well; set them apart."""
        side = self._side
        found: set[int] = set()
        for index, loaded in staging.loaded.items():
            held = [n for n in loaded.names if n in side.ns and name_root(n) in side.ledger.base]
            live = [oid for oid in loaded.contents if oid not in staging.fresh]
            if (held or live) and self._changed_here(held, live):
                found.add(index)
                group = frozenset(loaded.names)
                for name in group:
                    self.conflicts[name] = group
                    if name in side.ns:
                        self.aside[name] = side.ns.pop(name)
                    side.ledger.differ([name_root(name)])
                    side.ledger.remote.pop(name, None)
        return found

    def _changed_here(self, names: list[str], oids: list[str]) -> bool:
        side = self._side
        roots = [name_root(name) for name in names] + ["u:" + oid for oid in oids]
        bases = {id(b): b for r in roots if (b := side.ledger.base.get(r)) is not None}
        for base in bases.values():
            near = [r[2:] for r in base.roots if r.startswith("n:")]
            units = [r[2:] for r in base.roots if r.startswith("u:")]
            if any(name not in side.ns for name in near):
                continue  # deleted or taken away here: only the binding differs
            survey = side.survey_roots(near, units)
            parts = {id(g): g for r in base.roots if (g := survey.by_root.get(r)) is not None}
            merged = merge(parts.values())
            gone = base.roots - merged.key
            if not merged.key <= base.roots or any(not self._dead(root) for root in gone):
                return True
            try:
                packed = side.pack(merged, survey)
            except RefusedError:
                return True
            # Garbage may be collected at any time: that is no write.
            if gone and packed.trace and packed.trace <= base.trace:
                continue
            if gone or not side.unchanged(merged, survey, packed, base):
                return True
        return False

    def _dead(self, root: str) -> bool:
        return root.startswith("u:") and self._side.registry.get(root[2:]) is None

    def notes_for(self, names: set[str]) -> list[Note]:
        """Return what to say under the cell where these came into conflict."""
        return [self._conflict_note(name) for name in sorted(names)]

    def _conflict_note(self, name: str) -> Note:
        sentence = (
            f"{name} was changed at home and beside the GPU at the same time; neither is used. "
            f"Choose with %gpu resolve {name} home or %gpu resolve {name} gpu."
        )
        return Note("conflicted", sentence, (name,))

    def resolve(self, name: str, keep: str) -> list[str]:
        """End a conflict; return all names of its group."""
        if name not in self.conflicts:
            raise GPULeaseError("no_conflict", f"{name} is not in conflict.")
        if keep not in ("home", "gpu"):
            raise GPULeaseError("bad_choice", f"{keep!r} is neither home nor gpu.")
        group = sorted(self.conflicts[name])
        for member in group:
            self.conflicts.pop(member, None)
            value = self.aside.pop(member, None)
            if keep == "home" and value is not None:
                self._side.ns[member] = value
            elif keep == "gpu":
                self._side.ledger.remote[member] = Absent(type(value).__name__)
        return group

    # ---- loss

    def companion_died(self, running: Use | None, cell: str) -> list[Note]:
        """Mark as lost what was newer away; return what to say."""
        side = self._side
        died: dict[str, Lost] = {}
        for name, absent in side.ledger.remote.items():
            made = str(absent.cell) if absent.cell is not None else cell
            died[name] = Lost(made)
        for number, names in self._epochs.items():
            for name in names - died.keys():
                if name in side.ns:
                    died[name] = Lost(str(number), partial=True)
        for name in running.changes if running is not None else ():
            if is_user_name(name) and name not in died:
                died[name] = Lost(cell)
        for name in died:
            if name in side.ns:
                self.aside[name] = side.ns.pop(name)
        self.lost.update(died)
        self._clear()
        return [n for name in sorted(died) if (n := self.explain(name)) is not None]

    def companion_left(self) -> list[Note]:
        """The companion ended in good order: what is still newer there was parked."""
        for name, absent in self._side.ledger.remote.items():
            self.lost[name] = Lost(str(absent.cell or "?"), parked=True)
        left = sorted(self._side.ledger.remote)
        self._clear()
        return [n for name in left if (n := self.explain(name)) is not None]

    def _clear(self) -> None:
        self._side.ledger.remote.clear()
        self.doubtful.clear()
        self._epochs.clear()
        for name in list(self.conflicts):
            self.conflicts.pop(name)
            if name in self.aside:
                self._side.ns[name] = self.aside.pop(name)

    def unparked(self, absent: dict[str, Absent]) -> list[Note]:
        """A new companion has read what was parked: those names are away again."""
        for name, what in absent.items():
            if name in self.lost and name not in self._side.ns:
                self._side.ledger.remote[name] = replace(what, blocker="")
                del self.lost[name]
        return []

    def recover(self, names: Sequence[str]) -> None:
        """Accept older values: they are home's again."""
        for name in names:
            if name not in self.lost:
                raise GPULeaseError("not_lost", f"{name} is not lost.")
            if name not in self.aside:
                raise GPULeaseError(
                    "nothing_older",
                    f"There is no older value of {name} at home.",
                    next_step=f"Run the cell [{self.lost[name].cell}] again.",
                )
        for name in names:
            self._side.ns[name] = self.aside.pop(name)
            del self.lost[name]

    # ---- saying so

    def check(self, use: Use, where: str) -> None:
        """Raise for a name the cell reads first that is lost or in conflict."""
        for name in sorted(use.strict):
            self.check_name(name, where)

    def check_name(self, name: str, where: str) -> None:  # noqa: ARG002
        """Raise when ``name`` is lost or in conflict and not bound anew."""
        if name in self._side.ns:
            return
        if name in self.lost or name in self.conflicts:
            note = self.explain(name)
            assert note is not None
            raise GPULeaseError(note.reason, note.sentence)

    def explain(self, name: str) -> Note | None:
        """Say why ``name`` is not here, or None."""
        side = self._side
        if name in side.ns:
            return None
        if name in self.conflicts:
            return self._conflict_note(name)
        lost = self.lost.get(name)
        if lost is not None:
            return Note("parked" if lost.parked else "lost", self._lost_sentence(name, lost),
                        (name,))  # fmt: skip
        absent = side.ledger.remote.get(name)
        if absent is None:
            return None
        size = f", {absent.size:,} bytes" if absent.size else ""
        if absent.blocker:
            sentence = f"{name} is beside the GPU and cannot come home: it holds {absent.blocker}."
        else:
            sentence = (
                f"{name} ({absent.type_name}{size}) is beside the GPU and not yet home. "
                f"Run %gpu fetch {name}, then this cell again."
            )
        return Note("away", sentence, (name,))

    def _lost_sentence(self, name: str, lost: Lost) -> str:
        if lost.parked:
            return (
                f"{name} was made beside the GPU by cell [{lost.cell}] and is parked; "
                "the next GPU cell's companion has it."
            )
        older = f" %gpu recover {name} accepts the value from before." if name in self.aside else ""
        if lost.partial:
            return (
                f"{name} came home from cell [{lost.cell}], but other values of that cell were "
                f"lost with the companion.{older}"
            )
        return f"The value that cell [{lost.cell}] gave {name} was lost with the companion.{older}"

    def status(self, *, unverified: bool) -> list[VariableStatus]:
        """Return a row for every name, sorted."""
        side = self._side
        rows: dict[str, VariableStatus] = {}
        for name in side.names():
            root = name_root(name)
            both = root in side.ledger.base
            cost = side.ledger.costs.get(root)
            rows[name] = VariableStatus(
                name,
                type(side.ns[name]).__name__,
                Place.BOTH if both else Place.HOME,
                cost[1] if cost else None,
                both and not unverified,
                side.ledger.blocked.get(name, ""),
            )
        for name, absent in side.ledger.remote.items():
            rows[name] = VariableStatus(
                name, absent.type_name, Place.GPU, absent.size, absent.sure, absent.blocker
            )
        for name, lost in self.lost.items():
            if name not in side.ns:
                place = Place.PARKED if lost.parked else Place.LOST
                rows[name] = VariableStatus(name, "", place, None, True)
        for name in self.conflicts:
            rows[name] = VariableStatus(name, "", Place.CONFLICTED, None, True)
        return [rows[name] for name in sorted(rows)]
