"""Tells whether a module file of the student's own is the same on both sides.

Owns what file a module was loaded from, and that one which IPython loads anew by itself
(``%autoreload``) is not behind.  A file that was edited since is not what runs.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from gpulease.transfer.libraries import magics

_SITE = tuple({str(Path(path)) for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)})

#: Modules that were looked at; of a person's own, which load (its ``__spec__``) had which digest.
_seen: set[str] = set()
_digests: dict[str, tuple[Any, str, weakref.ref[ModuleType]]] = {}
#: What ends the digest of a module that a cell loaded anew (``importlib.reload``).
_AGAIN = "+"


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


def own_modules() -> list[str]:
    """Return the modules of the person's own that are imported now."""
    look()
    return [name for name, known in _digests.items() if known[1] and name in sys.modules]


def module_digest(name: str) -> str:
    """Return the digest of a person's own module file, as at its load; '' for installed ones.

    It ends with a mark where a cell loaded the module anew.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    known = _digests.get(name)
    if known is not None and known[0] is spec:
        return known[1]
    path = _own_file(module)
    if not path or module is None:
        _digests.pop(name, None)
        return ""
    digest = _of_file(path)
    if digest and known is not None and known[1] and known[2]() is module:
        digest += _AGAIN
    _digests[name] = spec, digest, weakref.ref(module)  # loading it anew makes another spec
    return digest


def _of_file(path: str) -> str:
    with suppress(OSError):
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return ""


def _own_file(module: ModuleType | None) -> str:
    path = getattr(module, "__file__", None)
    name = str(getattr(module, "__name__", ""))
    if not isinstance(path, str) or name == "__main__" or name.partition(".")[0] == "gpulease":
        return ""
    if "site-packages" in path or path.startswith(_SITE) or _is_of_packages(_folder(name, path)):
        return ""
    return path


def _folder(name: str, path: str) -> str:
    """Return the folder in which Python found the module's topmost package."""
    top = sys.modules.get(name.partition(".")[0])
    inside = list(getattr(top, "__path__", ()) or ())  # a package's own folder
    return str(Path(inside[0] if inside else getattr(top, "__file__", None) or path).parent)


@functools.cache
def _is_of_packages(folder: str) -> bool:
    """Say whether packages are installed in a folder (``pip install --target``)."""
    with suppress(OSError):
        return any(each.suffix == ".dist-info" for each in Path(folder).iterdir())
    return False


def is_alike(name: str, digest: str) -> bool:
    """Say whether an imported module was loaded from the file that has this digest.

    Where the person lets IPython load what was edited, that is done first; so is what a cell on the
    other side did, where it loaded the module anew from the file as it is.
    """
    text = digest.removesuffix(_AGAIN)
    if _text(name) == text:
        return True
    if (reloader := _autoreload()) is not None:
        reloader.check()
    elif digest != text and _of_file(_own_file(sys.modules.get(name))) == text:
        importlib.reload(sys.modules[name])
    return _text(name) == text


def _text(name: str) -> str:
    return module_digest(name).removesuffix(_AGAIN)


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
