"""Tells whether a module file of the student's own is the same on both sides."""

from __future__ import annotations

import hashlib
import sys
import types
from pathlib import Path

_SITE = tuple({str(Path(path)) for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)})

_module_digests: dict[str, str] = {}


def module_digest(module: types.ModuleType) -> str:
    """Return the digest of a person's own module file (as at import), '' for installed ones."""
    path = getattr(module, "__file__", None)
    if not path or "site-packages" in path or path.startswith(_SITE):
        return ""
    known = _module_digests.get(module.__name__)
    if known is None:
        try:
            known = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        except OSError:
            known = ""
        _module_digests[module.__name__] = known
    return known
