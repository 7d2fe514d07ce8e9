"""Whether a person typed the cell that runs now, or a tool asks something by the same channel.

Variable panes, debuggers and extensions of front ends run code of their own, and keep it out of
the history: that is what tells them apart.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any


def typed_by_person(request: Mapping[str, Any] | None) -> bool:
    """Return whether a request is a person's cell: one to execute that enters the history."""
    header = (request or {}).get("header") or {}
    if request is None or header.get("msg_type") != "execute_request":
        return False
    content = request["content"]
    silent = bool(content.get("silent"))
    return not silent and bool(content.get("store_history", True))


def on_main_thread() -> bool:
    """Return whether this is the thread of the notebook's cells, and none of a subshell."""
    return threading.current_thread() is threading.main_thread()
