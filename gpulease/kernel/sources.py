"""The text of cells that ran away, known at home.

Owns the entries in ``linecache`` by which ``inspect.getsource`` and home's tracebacks find the
source of functions that a GPU cell defined.
"""

from __future__ import annotations

import linecache
import tempfile
from collections import OrderedDict
from importlib import import_module
from pathlib import Path
from typing import Any

from gpulease.kernel.attach import Attachment

KEPT = 500


class Sources:
    """Remembers cells under the file names that the companion compiled them under."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._names: OrderedDict[str, None] = OrderedDict()

    def remember(self, source: str, attachment: Attachment | None) -> None:
        """Call before ``source`` runs in the companion of ``attachment``."""
        if attachment is None:
            return
        compiler: Any = import_module("ipykernel.compiler")
        digest = compiler.murmur2_x86(source, compiler.get_tmp_hash_seed())
        folder = Path(tempfile.gettempdir()) / f"ipykernel_{attachment.opened['pid']}"
        name = str(folder / f"{digest}.py")
        lines = source.splitlines(keepends=True)
        # No modification time: linecache then never drops the entry as stale.
        linecache.cache[name] = (len(source), None, lines, name)
        self._names[name] = None
        self._names.move_to_end(name)
        while len(self._names) > KEPT:
            old, _ = self._names.popitem(last=False)
            linecache.cache.pop(old, None)
