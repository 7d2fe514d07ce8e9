"""triton: a kernel travels as its function, source and options, and is compiled where it runs.

It also holds a lock, and what was compiled for the devices of its own process.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

from triton.runtime import jit

from .base import Aside, Inside, Packing, new

#: What a kernel makes anew when it is next compiled, and how it begins (``JITFunction.__init__``).
_COMPILED = ("_hash_lock", "hash", "used_global_vals", "device_caches", "kernel", "__globals__")
_KINDS: tuple[Any, ...] = (jit.JITFunction, getattr(jit, "ConstexprFunction", jit.JITFunction))


class _Triton(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return issubclass(kind, _KINDS)

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside(list(_source(obj).values()))

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return new, (type(obj),), _source(obj), None, None, fill


def _source(obj: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(obj).items() if name not in _COMPILED}


def fill(obj: Any, source: dict[str, Any]) -> None:
    """Give a kernel its source and options, as one that was never compiled."""
    anew: dict[str, Any] = {"_hash_lock": threading.RLock(), "hash": None, "used_global_vals": {}}
    vars(obj).update(source | anew, __globals__=source["fn"].__globals__)
    if isinstance(obj, jit.JITFunction):
        vars(obj).update(kernel=None, device_caches=defaultdict(obj.create_binder))


FRAMEWORK = _Triton()
