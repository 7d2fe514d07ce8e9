"""Frameworks whose objects need a way of their own: one room a framework, loaded with it.

A framework's objects are *claimed* by type.  For a claimed object the framework says what it
reaches (``inside``), how it is pickled (``reduce``), and what is put into the object that the other
side has already (``content`` and ``apply``).  What a framework keeps about a class in a table of
its own goes with the class (``entry`` and ``enter``).  ``base`` describes each part; ``triton`` is
a short example, ``torch`` one of everything.  Another package adds its own by an entry point::

    [project.entry-points."gpulease.frameworks"]
    mylib = "mylib_gpulease:FRAMEWORK"

The entry point's name is the top-level module whose import makes the framework *active*, its value
an object that follows ``base.Framework``.  Nothing is loaded before that module is imported.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import logging
import weakref
from collections.abc import Callable
from typing import Any

from gpulease.sides.libraries import library

from .base import Aside, Framework, Inside, Keeping, Packing, Stage, new, set_attributes, staged

__all__ = [
    "Aside", "Framework", "Inside", "Packing", "Stage", "active", "enter", "entries", "is_imported",
    "keeps", "new", "of", "refresh", "set_attributes", "staged",
]  # fmt: skip

log = logging.getLogger(__name__)

#: Top-level module to where its framework is.
_NAMES = (
    "accelerate", "cudf", "cupy", "ipywidgets", "jax", "keras", "matplotlib", "numba",
    "patsy", "plotly", "skorch", "spacy", "statsmodels", "sympy", "torch", "tqdm", "triton",
)  # fmt: skip
_OWN = {name: f"{__name__}.{name}:FRAMEWORK" for name in _NAMES}
_OWN |= {"gpulease": f"{__name__}.sealed:FRAMEWORK", __name__: f"{__name__}.away:FRAMEWORK"}
_OWN |= {
    f"{__name__}.host.{name}": f"{__name__}.host.{name}:FRAMEWORK" for name in ("arrays", "frames")
}
_loaded: dict[str, Framework | None] = {}
_by_type: dict[type, Framework | None] = {}
#: What frameworks of the other side keep about a class, where there is none of them here.
_elsewhere: weakref.WeakKeyDictionary[type, dict[str, Any]] = weakref.WeakKeyDictionary()


def refresh() -> None:
    """Take in the frameworks imported since the last call; before each pass over values."""
    for package, load in _known().items():
        if package not in _loaded and _is_imported(package):
            _loaded[package] = load()
            _by_type.clear()


def active() -> list[Framework]:
    """Return the frameworks that are loaded."""
    return [framework for framework in _loaded.values() if framework is not None]


def entries(cls: type) -> dict[str, Any]:
    """Return what each framework keeps about a class beside it, by the framework's name."""
    found = ((name, f.entry(cls)) for name, f in _loaded.items() if f is not None)
    own = {name: entry for name, entry in found if entry is not None}
    return {n: e for n, e in _elsewhere.get(cls, {}).items() if not _loaded.get(n)} | own


def enter(cls: type, entries: dict[str, Any]) -> None:
    """Have each framework keep about this side's class what the other side's keeps."""
    refresh()  # the class's bases may have imported it just now
    for name, entry in entries.items():
        framework = _loaded.get(name) or _imported(name)
        if framework is not None:
            framework.enter(cls, entry)
        else:  # it is for the next companion
            _elsewhere.setdefault(cls, {})[name] = entry


def _imported(name: str) -> Framework | None:
    """Import a library of which a class is entered: one that came later would not know it."""
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
        refresh()
    return _loaded.get(name)


def of(kind: type) -> Framework | None:
    """Return the framework that claims objects of exactly this type, or None."""
    try:
        return _by_type[kind]
    except KeyError:
        found = next((f for f in _loaded.values() if f is not None and f.claims(kind)), None)
        _by_type[kind] = found
        return found


def is_imported(obj: Any) -> bool:
    """Say whether a claimed object is some module's, and no name's own."""
    framework = of(type(obj))
    return framework is not None and framework.is_imported(obj)


def keeps(obj: Any) -> bool:
    """Say whether the very object on the other side becomes what this one is, without a pin."""
    framework = of(type(obj))
    return framework.keeps(obj) if isinstance(framework, Keeping) else False


def not_imported(objects: list[Any]) -> list[Any]:
    """Return those of claimed objects of which ``is_imported`` is not said."""
    asked = {kind for kind in set(map(type, objects)) if _may_be_imported(kind)}
    if not asked:
        return objects
    return [obj for obj in objects if type(obj) not in asked or not is_imported(obj)]


def _may_be_imported(kind: type) -> bool:
    """Say whether the framework of this type tells of any object that a module has it."""
    framework = of(kind)
    return framework is not None and type(framework).is_imported is not Aside.is_imported


@functools.cache
def _known() -> dict[str, Callable[[], Framework | None]]:
    found: dict[str, Callable[[], Framework | None]] = {
        name: functools.partial(_own, where) for name, where in _OWN.items()
    }
    for entry in importlib.metadata.entry_points(group="gpulease.frameworks"):
        found[entry.name] = functools.partial(_others, entry)
    return found


def _own(where: str) -> Framework | None:
    module, _, name = where.partition(":")
    framework: Framework = getattr(importlib.import_module(module), name)
    return framework


def _others(entry: importlib.metadata.EntryPoint) -> Framework | None:
    try:
        framework: Framework = entry.load()
    except Exception:  # its objects travel by plain pickle, or are refused by name
        log.exception("the framework %s (%s) does not load", entry.name, entry.value)
        return None
    return framework


def _is_imported(package: str) -> bool:
    """Say whether the package's own import is over: in the middle of it nothing can be asked."""
    module = library(package)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)
