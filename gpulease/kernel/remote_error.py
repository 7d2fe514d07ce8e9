"""Errors that happened in the companion, as home raises them.

Their classes are made dynamically: they have the other side's name, text and traceback, and a
builtin base where the original had one, so that ``except ValueError`` around ``@gpu.run`` works.
IPython shows the traceback as it came.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from gpulease.sides.last_error import Frame, remember


class RemoteError:
    """Mixed into every error relayed from a companion.

    Attributes:
        ename: class name of the original.
        evalue: its text.
        remote_traceback: the companion's formatted traceback, one string a block.
        original: what was raised there, None where that could not come here.
        frames: where it was raised.
    """

    original: BaseException | None = None
    frames: Sequence[Frame] = ()
    ename: str = ""
    evalue: str = ""
    remote_traceback: list[str]

    def __init__(self, ename: str = "", evalue: str = "", traceback: Sequence[str] = ()) -> None:
        self.ename = ename
        self.evalue = evalue
        self.remote_traceback = list(traceback)

    def __str__(self) -> str:
        return self.evalue

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{self.ename!r} object has no attribute {name!r} here: the error was raised on the"
            " GPU, and only its name and text could come to your notebook.",
            name=name,
            obj=self,
        )

    def _render_traceback_(self) -> list[str]:
        """Give IPython the companion's own traceback instead of home's frames."""
        return list(self.remote_traceback)

    def __reduce__(self) -> tuple[object, ...]:
        return remote_error, (self.ename, self.evalue, self.remote_traceback)


def remote_error(ename: str, evalue: str, traceback: Sequence[str]) -> BaseException:
    """Return an exception of a class named ``ename`` that shows the companion's traceback."""
    error: BaseException = _class_for(ename)(ename, evalue, traceback)
    return error


def remember_original(error: object) -> None:
    """IPython showed ``error``: let it remember what the companion raised in its place."""
    if isinstance(error, RemoteError) and error.original is not None:
        remember(error.original, error.frames)


def mark_shown(error: BaseException) -> None:
    """The person has seen this error: the cell fails with it, and nothing is shown again."""
    error.__dict__["_gpulease_shown"] = True


def was_shown(error: BaseException | None) -> bool:
    """Tell whether ``error`` is marked as shown."""
    return error is not None and "_gpulease_shown" in getattr(error, "__dict__", ())


@lru_cache(maxsize=256)
def _class_for(ename: str) -> type[BaseException]:
    original = getattr(builtins, ename, None)
    base: type[BaseException] = Exception
    # IPython formats SyntaxErrors itself, and takes SystemExit and groups apart: their remote
    # traceback would be lost, so these keep the name only.
    unsafe = (SyntaxError, SystemExit, BaseExceptionGroup)
    if (
        isinstance(original, type)
        and issubclass(original, BaseException)
        and not issubclass(original, unsafe)
    ):
        base = original
    return type(ename, (RemoteError, base), {"__module__": "builtins"})
