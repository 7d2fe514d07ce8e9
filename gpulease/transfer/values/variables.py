"""Which names of a namespace are the user's.

Owns the list of IPython's own names, which never travel.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection
from typing import Any

_OWN = frozenset({
    "In", "Out", "_ih", "_oh", "_dh", "exit", "quit", "open", "get_ipython", "_", "__", "___",
    "_i", "_ii", "_iii", "_exit_code",
})  # fmt: skip
_NUMBERED = re.compile(r"_i?\d+\Z")
_DUNDER = re.compile(r"__.*__\Z")


def is_user_name(name: str, hidden: Collection[str] = ()) -> bool:
    """Say whether a name may travel."""
    if name in _OWN or name in hidden:
        return False
    return name[:1] != "_" or not (_NUMBERED.match(name) or _DUNDER.match(name))


def user_names(ns: dict[str, Any], hidden: Collection[str]) -> list[str]:
    """Return the user's names of a namespace, sorted."""
    return sorted(name for name in list(ns) if is_user_name(name, hidden))


def builtin_names() -> frozenset[str]:
    """Return the names that code finds without the namespace."""
    return frozenset(vars(builtins))
