"""Whether a module file of the student's own is the same on both sides.

It records from which file a module was loaded and how often.  A module that the other side reloaded
(``importlib.reload``, ``%autoreload``) from the same file is reloaded here.  A file that was edited
since does not run.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from gpulease.sides.hushed import hushed
from gpulease.sides.libraries import magics

_SITE = tuple({str(Path(path)) for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)})

#: What stands before how often a module was loaded.
_AGAIN = "+"
#: In place of the digest of a module of which nobody knows what runs: it is like no other.
_UNKNOWN = "?"


@dataclass
class _Load:
    spec: Any  # loading a module anew makes another one
    digest: str
    times: int
    #: Of what time the file was that IPython last saw to (seconds since 1970); None if none.
    seen_to: float | None = None


#: Modules that were looked at, in the order in which they were imported.
_seen: dict[str, None] = {}
#: The last load of those that are a person's own.
_loads: dict[str, _Load] = {}
#: What the others were loaded by.
_installed: dict[str, Any] = {}
#: How often the other side has loaded modules that are not imported here yet.
_expected: dict[str, int] = {}


def look() -> None:
    """Take note of what was imported, or loaded anew, since the last look.

    To be called when code has run: later the file may be another.
    """
    if list(_seen) != (now := list(sys.modules)):  # there may be thousands, and rarely another
        new = [name for name in now if name not in _seen]
        _seen.clear()
        _seen.update(dict.fromkeys(now))
        for name in new:
            module_digest(name)
    for name in list(_loads):
        module_digest(name)


def own_modules() -> list[str]:
    """Return the modules of the person's own that are imported now."""
    look()
    return [name for name, load in _loads.items() if load.digest and name in sys.modules]


def module_digest(name: str) -> str:
    """Return the digest of a person's own module file, as at its load; '' for installed ones.

    It ends with how often the module was loaded, where that was more than once: what refers to it
    is another value then.
    """
    load = _load(name)
    if load is None:
        return ""
    return f"{load.digest}{_AGAIN}{load.times}" if load.digest and load.times > 1 else load.digest


def times_loaded(name: str) -> int:
    """Return how often a person's own module was loaded, 0 for others."""
    load = _load(name)
    return load.times if load is not None else 0


def _load(name: str) -> _Load | None:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if spec is not None and _installed.get(name) is spec:
        return None
    known = _loads.get(name)
    if known is not None and known.spec is spec:
        _follow_autoreload(name, known)
        return known
    if not (path := _own_file(module)):
        _loads.pop(name, None)
        _installed[name] = spec
        return None
    times = known.times + 1 if known is not None else _expected.pop(name, 1)
    _loads[name] = _Load(spec, _of_file(path), times, _seen_to(name))
    return _loads[name]


def _follow_autoreload(name: str, load: _Load) -> None:
    """Find out whether IPython has patched a module where it is: its spec stays the same then."""
    at = _seen_to(name)
    if at is None or at == load.seen_to:
        return
    if load.seen_to is not None:
        path = _own_file(sys.modules.get(name))
        load.digest = _of_file(path) if _time_of(path) == at else _UNKNOWN
    load.seen_to = at


def _seen_to(name: str) -> float | None:
    reloader = _autoreload()
    at: float | None = reloader.modules_mtimes.get(name) if reloader is not None else None
    failed = at is not None and reloader.failed.get(_own_file(sys.modules.get(name))) == at
    return None if failed else at


def _time_of(path: str) -> float | None:
    with suppress(OSError):
        return Path(path).stat().st_mtime
    return None


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


def load_edited() -> None:
    """Let IPython load what was edited now, where the person has it do so before each cell."""
    if (reloader := _autoreload()) is not None:
        reloader.check()


def reloaded(names: Collection[str]) -> dict[str, tuple[str, int]]:
    """Return digests of those of these modules that were loaded more than once, and how often."""
    found = {name: load for name in names if (load := _load(name)) is not None}
    return {name: (load.digest, load.times) for name, load in found.items() if load.times > 1}


def catch_up(name: str, digest: str, times: int) -> None:
    """Load a module anew that the other side has loaded more often, if that was from the same file.

    What ran several times there runs once here.
    """
    if name not in sys.modules:
        _expected[name] = times
        return
    if times_loaded(name) >= times:
        return
    if _of_file(_own_file(sys.modules[name])) == digest:
        _reload(name)
    if (load := _load(name)) is not None and load.digest == digest:
        load.times = times


def _reload(name: str) -> None:
    """Load a module anew; one that fails at it is like none of the other side's from then on."""
    try:
        with hushed():
            importlib.reload(sys.modules[name])
    except Exception:  # noqa: BLE001 - what uses it is refused as another version
        if (load := _load(name)) is not None:
            load.digest = _UNKNOWN


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
