"""What a cell shows while it waits: one display, of which nothing is saved in the notebook."""

from __future__ import annotations

import functools
import html
import uuid
from collections.abc import Callable
from typing import Any


class QueueProgress:
    """One display under the cell, updated in place.

    ``alone``: tells whether the cell shows nothing else so far.
    """

    def __init__(self, shell: Any, alone: Callable[[], bool] = lambda: False) -> None:
        self._shell = shell
        self._alone = alone
        self._shown = ""
        self.used = False

    @functools.cached_property
    def display_id(self) -> str:
        """Its id; most cells have nothing to show, and need none."""
        return f"gpulease-{uuid.uuid4().hex}"

    def show(self, text: str) -> None:
        """Show or replace the text; an equal text is not sent again."""
        if text != self._shown:
            self._shown = text
            self._shell.display_pub.publish(
                {
                    "text/plain": text,
                    "text/html": f'<div role="status">{html.escape(text)}</div>' if text else "",
                },
                transient={"display_id": self.display_id},
                update=self.used,
            )
            self.used = True

    def clear(self) -> None:
        """Leave nothing of it in the notebook: no text, and no empty line where it can be."""
        if self.used and self._alone():
            self._shell.display_pub.clear_output()
            self._shown, self.used = "", False
        elif self.used:
            self.show("")
