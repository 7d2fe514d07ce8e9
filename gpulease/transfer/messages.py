"""The sentences about values that are not here."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpulease.errors import GPULeaseError
from gpulease.sizes import size_text

from .api import Note, Place

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lost:
    """A name whose newest value died with the companion; ``cell`` made it, "" if not known.

    ``why`` the next companion could not read it, where it was parked.
    """

    cell: str
    parked: bool = False
    partial: bool = False
    why: str = ""

    def note(self, name: str, *, older: bool) -> Note:
        """Say so; ``older``: home has a value from before."""
        return Note("parked" if self.parked else "lost", self._sentence(name, older), (name,))

    def _sentence(self, name: str, older: bool) -> str:
        if self.parked:
            by = f" by cell [{self.cell}]" if self.cell else ""
            return (
                f"{name} was made on the GPU{by} and is parked; the next GPU cell's companion "
                "has it."
            )
        again = f"Run cell [{self.cell}] again" if self.cell else "Make it again"
        recover = (
            f"%gpu recover {name} accepts the value from before, %gpu recover those of all names"
        )
        way_out = f" {recover if older else again}; del {name} forgets it."
        which = f"value that cell [{self.cell}] gave" if self.cell else "newest value of"
        made = f"The {which} {name}"
        if self.why:
            return f"{made} was parked, and is lost: {self.why}.{way_out}"
        if self.partial:
            return (
                f"{name} was copied back from cell [{self.cell}], but other values of that cell "
                f"were lost with the companion.{way_out}"
            )
        return f"{made} was lost with the companion.{way_out}"


def loss_notes(lost: Mapping[str, Lost], older: Collection[str]) -> list[Note]:
    """Say under a cell which names' newest values are lost and which are parked.

    Of the ``older`` ones there is a value from before, and one command accepts them all.  What can
    be done about the others is said by the one that is read.
    """
    kinds: dict[str, list[str]] = {kind: [] for kind in _LOSSES}
    for name, each in sorted(lost.items()):
        kind = "parked" if each.parked else "older" if name in older else "lost"
        kinds[kind].append(name)
    return [
        Note("parked" if kind == "parked" else "lost", _LOSSES[kind].format(_listed(names)),
             tuple(names))
        for kind, names in kinds.items() if names
    ]  # fmt: skip


def not_recovered(name: str, lost: Lost | None) -> Note:
    """Say why there is no older value of a name to accept."""
    if lost is None:
        return Note("not_lost", f"{name} is not lost.", (name,))
    again = f" Run cell [{lost.cell}] again." if lost.cell else ""
    why = f"There is no older value of {name} in your notebook.{again}"
    return Note("nothing_older", why, (name,))


#: So many names stand in a sentence; ``%gpu`` lists them all.
_LISTED = 12
_LOSSES = {
    "older": "The newest values of these were lost with the companion: {}. "
    "%gpu recover accepts those from before, of all of them.",
    "lost": "Lost with the companion: {}. Reading one says what can be done.",
    "parked": "Parked until the next GPU cell: {}.",
}


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(
        [*names[:_LISTED], *([f"and {more} more (%gpu lists them)"] if more > 0 else [])]
    )


def away_note(name: str, type_name: str, size: int | None, blocker: str) -> Note:
    """Say that a name's newest value is on the GPU; ``blocker``: why it cannot come, or ""."""
    large = f", {size_text(size)}" if size else ""
    if blocker.endswith("."):
        sentence = f"{name} ({type_name}{large}) is on the GPU. {blocker}"
    elif blocker:
        sentence = f"{name} is on the GPU and cannot be copied to the notebook: {_why(blocker)}."
    else:
        sentence = (
            f"{name} ({type_name}{large}) is on the GPU and not yet home. "
            f"Run %gpu fetch {name}, then this cell again."
        )
    return Note("away", sentence, (name,))


def sealed_note(name: str, lack: str) -> Note:
    """Say that a value's bytes are kept until they are where it can be opened."""
    sentence = (
        f"{name} cannot be opened in your notebook: {_why(lack)}. Its value is kept, "
        "and GPU cells can use it."
    )
    return Note("sealed", sentence, (name,))


def stayed_note(name: str, blocker: str) -> Note:
    """Say why a name of home is not on the GPU."""
    if blocker:
        what = f"cannot travel to the GPU: {_why(blocker)}. Make it again in a GPU cell."
    else:
        what = (
            f"did not travel, since nothing said that the cell needs it. Name {name} in the cell."
        )
    return Note("stayed", f"{name} is in your notebook and {what}", (name,))


def thread_notes(running: list[threading.Thread]) -> list[Note]:
    """Name the user's threads that live across a GPU cell."""
    if not running:
        return []
    names = sorted(thread.name for thread in running)
    return [
        Note("thread_alive", f"Still running in your notebook: {', '.join(names)}.", tuple(names))
    ]


def abandoned() -> GPULeaseError:
    """Return the answer to a request that user code ended."""
    return GPULeaseError("transfer_abandoned", "The other side is computing.")


def unforeseen(what: str) -> GPULeaseError:
    """Log the exception that is handled now, and return the answer to ``what`` it has ended."""
    reference = secrets.token_hex(4)
    log.exception("%s failed (reference %s)", what, reference)
    return GPULeaseError(
        "internal",
        f"Carrying variables failed inside gpulease (reference {reference}).",
        next_step="Nothing was changed in your notebook. If the cell did not run, run it again.",
    )


def cannot_move(name: str, kind: str, where: Place) -> GPULeaseError:
    """Return the refusal of a needed name, which is in the notebook or on the GPU."""
    place = "in your notebook (%%cpu)" if where is Place.HOME else "on the GPU (%%gpu)"
    return GPULeaseError(
        "cannot_move",
        f"{name} cannot travel between the home kernel and the GPU: {_why(kind)}.",
        next_step="Leave it out of this cell, make it again on the side that uses it, "
        f"or run the cell where it is, {place}.",
        numbers={"names": name},
    )


def structure_only(changed: Sequence[str], kept: Sequence[str]) -> GPULeaseError:
    """Return the refusal of what a cell changed of values of which only the structure was here.

    ``kept`` are names that it bound to a part of one.
    """
    said = [f"What the last cell changed of {', '.join(changed)} is not taken"] * bool(changed)
    said += [f"{', '.join(kept)} had a part of such a value, and is gone"] * bool(kept)
    return GPULeaseError(
        "structure_only",
        f"{'; '.join(said)}: only the structure was in your notebook. The values are on the "
        "GPU, and as they were.",
        next_step="Do it in a GPU cell.",
    )


def _why(kind: str) -> str:
    return kind if kind.startswith(("it ", "the ", "nested")) else f"it holds {kind}"
