"""The text of cells, known on both sides.

``inspect.getsource`` and tracebacks find a function's cell also where the function was not defined.
GPU cells are registered here under the file names that the companion compiled them under; cells of
home and of earlier companions are sent to the companion.
"""

from __future__ import annotations

import linecache
import tempfile
from collections import OrderedDict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulease.protocol.control import CellText
from gpulease.sides.sources import learn

if TYPE_CHECKING:
    from gpulease.kernel.attach import Attachment

KEPT = 500
#: At most this many characters of cells go with one GPU cell; the newest come first.
TOLD = 500_000


class Sources:
    """Remembers GPU cells and home's cells, and says which the companion lacks."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._away: OrderedDict[str, None] = OrderedDict()
        self._told: set[str] = set()
        self._told_to: object = None

    def remember(self, source: str, count: int, attachment: Attachment | None) -> None:
        """Call before ``source`` runs as cell ``count`` in the companion of ``attachment``."""
        if attachment is None:
            return
        self._meet(attachment)
        compiler: Any = import_module("ipykernel.compiler")
        digest = compiler.murmur2_x86(source, compiler.get_tmp_hash_seed())
        folder = Path(tempfile.gettempdir()) / f"ipykernel_{attachment.opened['pid']}"
        name = str(folder / f"{digest}.py")
        learn(self._shell, name, count, source)
        self._told.add(name)
        self._away[name] = None
        self._away.move_to_end(name)
        while len(self._away) > KEPT:
            old, _ = self._away.popitem(last=False)
            linecache.cache.pop(old, None)

    def _meet(self, companion: object) -> None:
        """Start over with another companion."""
        if companion is not self._told_to:
            self._told_to = companion
            self._told.clear()

    def untold(self, companion: object) -> list[CellText]:
        """Return the cells of home, and of companions before this one, that ``companion`` has not
        been told of; they count as told.
        """
        self._meet(companion)
        found: list[CellText] = []
        size = 0
        for name, count in reversed(self._shell.compile._filename_map.items()):  # noqa: SLF001
            if name in self._told:
                continue
            self._told.add(name)
            text = "".join(linecache.getlines(name))
            size += len(text)
            if size <= TOLD and not text.startswith("__import__('gpulease.kernel'"):
                found.append({"name": name, "execution_count": count, "text": text})
        return found
