"""The note under the last GPU cell: what became of its GPU while no cell ran.

Each GPU cell has one display, published as the cell's own output, so the note is seen without
running anything.  It is final text, because it may be saved with the notebook; a warning that came
to nothing is removed.
"""

from __future__ import annotations

import uuid
from typing import Any

from gpulease.kernel.clock import clock
from gpulease.kernel.relay import Message, Relay, sentence_bundle


class CellNote:
    """The last GPU cell's note; main thread only."""

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
