"""The text of a cell, for ``inspect.getsource`` and tracebacks where it was not compiled."""

from __future__ import annotations

import linecache
from typing import Any


def learn(shell: Any, name: str, count: int, text: str) -> None:
    """Let ``shell`` find ``text`` as the source of cell ``count`` compiled as ``name``."""
    lines = text.splitlines(keepends=True)
    # No modification time: linecache then never drops the entry as stale.
    linecache.cache[name] = (len(text), None, lines, name)
    shell.compile._filename_map[name] = count  # noqa: SLF001 - how IPython finds In[n] of a file
