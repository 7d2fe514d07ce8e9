"""Tab completion and inspection for names that live in the companion.

The companion is asked for 300 ms at most, and only when it is idle; the rest stays IPython's.
"""

from __future__ import annotations

import re
from typing import Any

from IPython.utils.tokenutil import token_at_cursor

from gpulease.kernel.parts import Parts

PATIENCE = 0.3
_TOKEN = re.compile(r"[A-Za-z_]\w*")


class Completion:
    """Wraps the kernel's ``do_complete`` and ``do_inspect`` until ``remove``."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        kernel = parts.kernel
        self._complete = kernel.do_complete
        self._inspect = kernel.do_inspect
        kernel.do_complete = self.do_complete
        kernel.do_inspect = self.do_inspect

    def remove(self) -> None:
        """Give the kernel its own methods back."""
        for name in ("do_complete", "do_inspect"):
            self._parts.kernel.__dict__.pop(name, None)

    def do_complete(self, code: str, cursor_pos: int | None) -> Any:
        """Complete here, and there when the expression begins with a name that is only there."""
        position = len(code) if cursor_pos is None else cursor_pos
        content = {"code": code, "cursor_pos": position}
        here = self._complete(code, cursor_pos)
        there = self._ask(code, position, "complete_request", content)
        if there is None or there.get("status") != "ok" or not there.get("matches"):
            return here
        if here.get("cursor_start") != there["cursor_start"]:
            return there
        merged = dict(here)
        for match in there["matches"]:
            if match not in merged["matches"]:
                merged["matches"] = [*merged["matches"], match]
        merged["metadata"] = {}
        return merged

    def do_inspect(self, code: str, cursor_pos: int, *args: Any, **kwargs: Any) -> Any:
        """Inspect there what is not here, or what only something here stands for."""
        here = self._inspect(code, cursor_pos, *args, **kwargs)
        if here.get("found") and not self._is_away(token_at_cursor(code, cursor_pos)):
            return here
        level = args[0] if args else kwargs.get("detail_level", 0)
        content = {"code": code, "cursor_pos": cursor_pos, "detail_level": level}
        there = self._ask(code, cursor_pos, "inspect_request", content)
        return here if there is None else dict(there)

    def _is_away(self, path: str) -> bool:
        name = path.partition(".")[0]
        return self._parts.executor.channels is not None and name in self._parts.home.away_names()

    def _ask(self, code: str, position: int, kind: str, content: dict[str, Any]) -> Any:
        parts = self._parts
        if parts.executor.channels is None or parts.executor.busy or parts.running:
            return None
        away = set(parts.home.away_names())
        start = code.rfind("\n", 0, position) + 1
        end = code.find("\n", position)
        line = code[start : len(code) if end < 0 else end]
        words = set(_TOKEN.findall(line))
        beginning = _TOKEN.findall(code[start:position])[-1:]
        if not words & away and not any(n.startswith(b) for n in away for b in beginning):
            return None
        return parts.executor.ask(kind, content, timeout=PATIENCE)
