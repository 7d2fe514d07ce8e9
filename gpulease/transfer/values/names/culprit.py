"""Finds what in a pickle does not load here, by loading it once more, slowly.

Owns only the search.  The other side then sends objects of that kind sealed, and the rest as it is.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from gpulease.transfer.frameworks.sealed import Culprit

#: Larger pickles are not searched: the interpreter reads a million bytes a second.
_MOST = 8 * 2**20
#: The one in Python: it can be asked what it is about to call.
_Unpickler: Any = pickle._Unpickler  # noqa: SLF001


def find_culprit(
    data: bytes,
    buffers: Sequence[Any],
    find_class: Callable[[str, str], Any],
    persistent_load: Callable[[Any], Any],
) -> Culprit | None:
    """Return what a pickle names or calls that fails here; None where nothing of the kind does."""
    if len(data) > _MOST:
        return None
    search = _Search(io.BytesIO(data), buffers=buffers)
    search.outer_class, search.outer_load = find_class, persistent_load
    try:
        search.load()
    except Exception:  # noqa: BLE001 - what a value's own code raises is what is looked for
        return search.culprit
    return None


class _Search(_Unpickler):  # type: ignore[misc]
    """Notes what it is about to call."""

    culprit: Culprit | None = None
    outer_class: Callable[[str, str], Any]
    outer_load: Callable[[Any], Any]

    def find_class(self, module: str, name: str) -> Any:
        try:
            found = self.outer_class(module, name)
        except ModuleNotFoundError:
            self.culprit = (module.partition(".")[0], "")
            raise
        except (ImportError, AttributeError):
            self.culprit = (module, name)
            raise
        return found

    def persistent_load(self, pid: Any) -> Any:
        return self.outer_load(pid)

    def load_reduce(self) -> None:
        self._calling(self.stack[-2])
        super().load_reduce()
        self.culprit = None

    def load_newobj(self) -> None:
        self._calling(self.stack[-2])
        super().load_newobj()
        self.culprit = None

    def load_build(self) -> None:
        self._calling(type(self.stack[-2]))
        super().load_build()
        self.culprit = None

    def _calling(self, called: Any) -> None:
        if isinstance(called, functools.partial):
            called = called.func
        module = getattr(called, "__module__", None) or ""
        ours = module.startswith(("gpulease.", "builtins", "copyreg")) or module == "__main__"
        self.culprit = None if ours or not module else (module, called.__qualname__)

    dispatch: ClassVar[dict[int, Any]] = {
        **_Unpickler.dispatch,
        pickle.REDUCE[0]: load_reduce,
        pickle.NEWOBJ[0]: load_newobj,
        pickle.BUILD[0]: load_build,
    }
