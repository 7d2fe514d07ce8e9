"""What a person reads of their GPU between cells: of the next cell, and under the last GPU cell.

Sentences wait here for the next cell, with a warning that may come to nothing and the one that says
how the lease ended.  Main thread only.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from gpulease.kernel.clock import clock
from gpulease.kernel.relay import Message, Relay, sentence_bundle
from gpulease.protocol.service import EndView

#: What a supervisor's last word means, where the service has not said it in a sentence yet.
_END = {
    "idle": "The GPU was released: it was not used.",
    "returned": "The GPU was released.",
    "preempted": "The GPU went to somebody with priority.",
    "expired": "The GPU was released: its time was up.",
    "window_over": "The GPU was released: the reserved time is over.",
    "forced": "The GPU was taken back by an administrator.",
    "failed": "The GPU is no longer available: its lease failed.",
    "parent_gone": "The GPU is no longer available: the notebook server stopped.",
    "reshaped": "The lease changed its GPUs; your variables are here, and it continues by itself.",
}


#: Why a GPU cell was stopped, by the reason for which its lease leaves.
_STOPPED = {
    "idle": "It was not used.",
    "preempted": "It goes to somebody with priority.",
    "preempted_in_part": "Some of its GPUs go to somebody with priority.",
    "reserved_in_part": "Some of its GPUs are reserved for a lab.",
    "expired": "Its time was up, or its GPU-hours.",
    "window_over": "The reserved time is over.",
    "forced": "An administrator ended it.",
    "stopped": "What it runs on is being stopped.",
}


class Notices:
    """The sentences of one kernel; ``note``, set by the session, stands under its last GPU cell."""

    def __init__(self) -> None:
        self.note: CellNote | None = None
        self._sentences: list[str] = []
        self._warning = ""  # what the next home cell says of a lease that will leave
        self._state = ""  # the newest word of what became of the GPU; it replaces an older one
        self._ended = ""  # the lease that ended last,
        self._afterwards = ""  # and how what was said of it ends

    def add(self, *sentences: str) -> None:
        """Keep sentences for the next cell; one that waits already is not said twice."""
        self._sentences += [each for each in sentences if each not in self._sentences]

    def stays(self, sentence: str) -> None:
        """The GPU is not released after all."""
        self.withdraw()
        self._add_state(sentence)

    def take(self) -> list[str]:
        """Return what the next cell says, in order, and forget it."""
        sentences, self._sentences = self._sentences, []
        return sentences

    def warn(self, sentence: str) -> None:
        """The GPU will leave; ``withdraw`` takes it back."""
        self.withdraw()
        self._warning = sentence
        self._sentences.append(sentence)
        if self.note is not None:
            self.note.warn(sentence)

    def withdraw(self) -> None:
        """The GPU is used, or kept: a warning holds no longer."""
        self._forget_warning()
        if self.note is not None:
            self.note.withdraw()

    def lease_over(self, lease_id: str, sentence: str, losses: Sequence[str]) -> None:
        """The lease was released for the reason of ``sentence``; ``losses`` did not come back."""
        self._ended = lease_id
        here = "The" if losses else "Your variables are here; the"
        self._afterwards = f"{here} next %%gpu cell gets a GPU again."
        if sentence == _END["reshaped"]:  # the same lease goes on, and nothing has to be asked for
            self._afterwards = ""
        words = f"{sentence} {self._afterwards}".rstrip()
        self._add_state(words)
        self.add(*losses)
        self._final(words)

    def say_better(self, lease_id: str, end: EndView) -> None:
        """The service's own words about an end that the supervisor told first."""
        if lease_id != self._ended or not self._afterwards:
            return
        said = next((one for one in self._sentences if one.endswith(self._afterwards)), None)
        if said is not None:
            afterwards = self._afterwards
            if end["reason"] == "expired":  # of a budget nothing may be left
                afterwards = afterwards.replace("gets a GPU again", "asks for a GPU again")
            words = f"{end_words(end)} {afterwards}"
            self._sentences[self._sentences.index(said)] = self._state = words
            self._final(words)

    def _add_state(self, sentence: str) -> None:
        self._sentences = [each for each in self._sentences if each != self._state]
        self._state = sentence
        self.add(sentence)

    def _final(self, sentence: str) -> None:
        self._forget_warning()
        if self.note is not None:
            self.note.final(sentence)

    def _forget_warning(self) -> None:
        if self._warning in self._sentences:
            self._sentences.remove(self._warning)
        self._warning = ""


def end_words(end: EndView | None) -> str:
    """Return what the service says of an end; what an admin wrote is part of it."""
    return end["sentence"] if end else "The lease ended."


def stopped_word(reason: str) -> str:
    """Return a sentence for the reason for which a running GPU cell was stopped."""
    return _STOPPED.get(reason, "Its lease ended.")


def last_word(reason: str) -> str:
    """Return a sentence for the reason that a supervisor gave for its end."""
    return _END.get(reason, "The lease ended.")


class CellNote:
    """The note under the last GPU cell: what became of its GPU while no cell ran.

    Each GPU cell has one display, published as the cell's own output, so the note is seen without
    running anything.  It is final text, because it may be saved with the notebook; a warning that
    came to nothing is removed.
    """

    def __init__(self, shell: Any, relay: Relay) -> None:
        self._shell = shell
        self._relay = relay
        self._parent: Message | None = None
        self._display_id = ""
        self._shown = ""
        self._warning = False

    def next_cell(self, parent: Message | None) -> None:
        """A GPU cell runs as part of home's message ``parent``: later notes stand under it."""
        self.withdraw()
        self._parent, self._display_id, self._shown = parent, "", ""

    def warn(self, sentence: str) -> None:
        """Say that the GPU will leave; ``withdraw`` takes it back."""
        self._show(sentence)
        self._warning = True

    def final(self, sentence: str) -> None:
        """Say what became of the GPU; it stays."""
        self._show(sentence)
        self._warning = False

    def withdraw(self) -> None:
        """Take a warning away, for the GPU stays; nothing where none stands."""
        if self._warning:
            self.final("")

    def _show(self, sentence: str) -> None:
        if sentence == self._shown or self._parent is None:
            return
        self._shown = sentence
        update = bool(self._display_id)
        self._display_id = self._display_id or f"gpulease-{uuid.uuid4().hex}"
        with self._relay.under(self._parent):
            self._shell.display_pub.publish(
                sentence_bundle(sentence),
                transient={"display_id": self._display_id},
                update=update,
            )


def leaves_at(until: str, reason: str) -> str:
    """Return the sentence of a warning: when the GPU leaves, and what keeps it."""
    try:
        at = f"at {clock(until)}"
    except ValueError:
        at = "soon"
    if reason in ("preempted_in_part", "reserved_in_part"):
        return f"Some of its GPUs are released {at}; your variables are saved, and it continues."
    if reason in ("expired", "hard_end", "window_over", "preempted", "forced"):
        return f"The GPU is released {at}; your variables are saved first."
    return f"The GPU is released {at} unless it is used; %gpu keep keeps it."
