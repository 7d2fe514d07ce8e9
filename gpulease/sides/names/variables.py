"""Which names of a namespace are the user's.

The names that IPython and compilers put there never travel.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

_OWN = frozenset({
    "In", "Out", "_ih", "_oh", "_dh", "exit", "quit", "open", "get_ipython", "_", "__", "___",
    "_i", "_ii", "_iii",
})  # fmt: skip
_NUMBERED = re.compile(r"_i?\d+\Z")
_DUNDER = re.compile(r"__.*__\Z")
#: What torch.compile puts beside a function for the code that it makes (torch._dynamo:
#: OutputGraph.install_global, CompilePackage): each process needs its own.
_COMPILED = re.compile(
    r"(__import_|__compiled_fn_|__resume_at_|__builtins_dict__|__gen_rand_values|"
    r"__warnings_warn_wrapper|___context_manager_)\w*\Z|\w*_\d{9,}_c\d+\Z"
)


def is_of_compiled_code(name: str) -> bool:
    """Say whether ``torch.compile`` has put a name into the namespace."""
    return (name[:2] == "__" or "_c" in name) and _COMPILED.match(name) is not None


def is_user_name(name: str, hidden: Collection[str] = ()) -> bool:
    """Say whether a name may travel."""
    if name in _OWN or name in hidden:
        return False
    if name[:1] == "_" and (_NUMBERED.match(name) or _DUNDER.match(name)):
        return False
    return not is_of_compiled_code(name)


def user_names(ns: dict[str, Any], hidden: Collection[str]) -> list[str]:
    """Return the user's names of a namespace, sorted."""
    names = {name for name in list(ns) if is_user_name(name, hidden)}
    if "open" in ns and not _is_own_open(ns["open"]):  # a notebook's own: ``open = gzip.open``
        names.add("open")
    return sorted(names)


def _is_own_open(value: Any) -> bool:
    module = str(getattr(value, "__module__", ""))
    return value is open or module.startswith(("IPython", "io", "_io"))
