"""Imports in the companion what the notebook has imported, while no cell waits for it.

The first GPU cell would wait for it otherwise: torch takes seconds.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterable

from gpulease.sides import memory
from gpulease.sides.hushed import import_quietly
from gpulease.sides.libraries import library
from gpulease.sides.state.process_state import ProcessState

from .peer import Peer

#: Packages that take long, and whose import alone starts no device, thread or download.
_PACKAGES = ("numpy", "scipy", "pandas", "sklearn", "torch", "torchvision", "transformers")
#: Whatever patches a package has to come first: it is loaded on the GPU only.
_PATCHED_BY = {"pandas": "cudf"}
#: Bytes that must be free for one more package (torch takes half a GiB).
_ROOM = 2 * 2**30

log = logging.getLogger(__name__)


class ImportsAhead:
    """Home's part: tells the companion of a package once, and of none once a variable changed.

    A package may read the environment when it is imported, and a changed one travels with a cell.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._told: set[str] = set()
        self._environ: dict[str, str] = {}

    def connected(self) -> None:
        """There is a new companion; it was given this process's environment."""
        self._told = set()
        self._environ = dict(os.environ)
        self.tell()

    def tell(self) -> None:
        """Name what was imported here since the last time."""
        new = [name for name in _PACKAGES if library(name) is not None and name not in self._told]
        wire = self._peer.wire
        if new and wire is not None and not wire.broken and dict(os.environ) == self._environ:
            self._told.update(new)
            wire.request("import", {"names": new})


def import_ahead(state: ProcessState, names: Iterable[str], check: Callable[[], None]) -> None:
    """Import packages here, one after the other, while ``check`` raises nothing.

    No state of the process is the notebook's for that: torch brings a generator of its own.
    """
    if state.is_agreed and state.capture():
        return
    for name in names:
        check()
        if name in sys.modules or memory.available() < _ROOM or _comes_later(name):
            continue
        try:
            import_quietly(name)
        except Exception:  # the cell that imports it says so, where somebody sees it
            log.debug("%s cannot be imported ahead", name, exc_info=True)
        finally:
            state.agree_as_it_is()


def _comes_later(name: str) -> bool:
    patch = _PATCHED_BY.get(name)
    return patch is not None and importlib.util.find_spec(patch) is not None
