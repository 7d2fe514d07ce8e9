"""Tells whether a module file of the student's own is the same on both sides.

Owns what file a module was loaded from, and that one which IPython loads anew by itself
(``%autoreload``) is not behind.  A file that was edited since is not what runs.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from gpulease.transfer.libraries import magics

_SITE = tuple({str(Path(path)) for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)})

#: Modules that were looked at; of a person's own, which load (its ``__spec__``) had which digest.
_seen: set[str] = set()
_digests: dict[str, tuple[Any, str]] = {}


def look() -> None:
    """Take note of what was imported, or loaded anew, since the last look.

    To be called when code has run: later the file may be another.
    """
    _seen.intersection_update(sys.modules)
    for name in sys.modules.keys() - _seen:
        _seen.add(name)
        module_digest(name)
    for name in list(_digests):
        module_digest(name)


def module_digest(name: str) -> str:
    """Return the digest of a person's own module file, as at its load; '' for installed ones."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    known = _digests.get(name)
    if known is not None and known[0] is spec:
        return known[1]
    path = _own_file(module)
    if not path:
        _digests.pop(name, None)
        return ""
    digest = ""
    with suppress(OSError):
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    _digests[name] = spec, digest  # loading it anew makes another spec
    return digest


def _own_file(module: ModuleType | None) -> str:
    path = getattr(module, "__file__", None)
    name = str(getattr(module, "__name__", ""))
    if not isinstance(path, str) or name == "__main__" or name.partition(".")[0] == "gpulease":
        return ""
    return "" if "site-packages" in path or path.startswith(_SITE) else path


def is_alike(name: str, digest: str) -> bool:
    """Say whether an imported module was loaded from the file that has this digest.

    Where the person lets IPython load what was edited, that is done first.
    """
    if module_digest(name) == digest:
        return True
    reloader = _autoreload()
    if reloader is None:
        return False
    reloader.check()
    return module_digest(name) == digest


def autoreload_lines() -> list[str]:
    """Return the magics that make another kernel load edited modules as this one does."""
    reloader = _autoreload()
    if reloader is None:
        return []
    mode = 3 if getattr(reloader, "autoload_obj", False) else 1 + bool(reloader.check_all)
    return ["%load_ext autoreload", f"%autoreload {mode}"]


def _autoreload() -> Any:
    """Return what loads edited modules before each cell, None where nothing does."""
    reloader = getattr(magics("AutoreloadMagics"), "_reloader", None)
    return reloader if reloader is not None and reloader.enabled else None
