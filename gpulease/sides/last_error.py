"""The error that IPython remembers (``sys.last_value`` and its kin), sent to the other side.

The exception travels with the place of each of its frames, so that its traceback names the same
places there.  What was in the frames stays.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from gpulease.errors import GPULeaseError

_HIDE = "__tracebackhide__"
_NOWHERE = (None, None, None, None)
_LAST = ("last_type", "last_value", "last_traceback", "last_exc")


class Frame(NamedTuple):
    """Where a frame was: ``spot`` is line, last line, column and last column of what it ran.

    ``hide`` is what it says to those who show tracebacks (``__tracebackhide__``).
    """

    file: str
    line: int
    name: str
    qualified: str
    spot: tuple[int | None, ...]
    hide: Any


#: Deeper ones are left out in the middle: who reads that far wants the two ends.
_MOST = 200


class _Elsewhere(dict[str, Any]):
    """Stands for the variables of a frame that did not travel: says so when it is asked.

    What shows tracebacks asks each frame whether it is to be hidden: that is known.
    """

    def __init__(self, hide: Any) -> None:
        super().__init__()
        self._hide = hide

    def get(self, name: str, default: Any = None) -> Any:
        """Return whether the frame is hidden; no other name is known here."""
        if name != _HIDE:
            self._refuse()
        return self._hide or default

    def _refuse(self, *_: object) -> NoReturn:
        raise GPULeaseError(
            "frames_stay",
            "What was in the frames of this error stayed on the side where it was raised.",
            next_step="Look at them there: %debug right after a failed GPU cell does, or a %%gpu"
            " cell.",
        )

    __getitem__ = __iter__ = __len__ = __contains__ = _refuse
    keys = values = items = copy = _refuse

    def __repr__(self) -> str:
        return "<stayed on the side where the error was raised>"


def current() -> BaseException | None:
    """Return the error that is remembered here."""
    error = vars(sys).get("last_value")  # asked as an attribute, it may explain itself
    return error if isinstance(error, BaseException) else None


def last_error(names: Mapping[str, Any]) -> tuple[BaseException | str, list[Frame]] | None:
    """Return the error that is remembered here, and its frames; None where there is none.

    Where it has a name among these, that name stands for it.
    """
    error = current()
    if error is None:
        return None
    name = next((name for name, value in names.items() if value is error), None)
    return name or error, frames_of(vars(sys).get("last_traceback"))


def frames_of(trace: types.TracebackType | None) -> list[Frame]:
    """Return where the frames of a traceback were, the outermost one first."""
    found = [_frame(each) for each in _each(trace)]
    return found if len(found) <= _MOST else found[: _MOST // 2] + found[-_MOST // 2 :]


def _frame(trace: types.TracebackType) -> Frame:
    code = trace.tb_frame.f_code
    spot = next(islice(code.co_positions(), trace.tb_lasti // 2, None), _NOWHERE)
    hide = trace.tb_frame.f_locals.get(_HIDE)
    known = hide if isinstance(hide, str | bool | int) else None
    return Frame(code.co_filename, trace.tb_lineno, code.co_name, code.co_qualname, spot, known)


def remember(error: BaseException, frames: Sequence[Frame]) -> None:
    """Make ``error`` the one that IPython remembers here, raised in these frames."""
    trace = _traceback(frames)
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if hasattr(sys, "last_exc") or sys.version_info >= (3, 12):
        vars(sys)["last_exc"] = error


def forget(newer: bool) -> None:
    """Have no last error here, for the other side's is newer; or, not ``newer``, it has none.

    Who asks for a newer one here is told where it is.  A program that the notebook sends calls this
    by its name (``kernel.outputs``).
    """
    for name in (*_LAST, "__getattr__"):
        vars(sys).pop(name, None)
    if newer:
        vars(sys)["__getattr__"] = _told_elsewhere


def _told_elsewhere(name: str) -> NoReturn:
    if name in _LAST and "last_value" not in vars(sys):
        raise GPULeaseError(
            "last_error_elsewhere",
            f"The last error (sys.{name}) is in your notebook, and has not come to the GPU.",
            next_step="Read it in a cell without %%gpu, or write sys.last_value into the GPU cell"
            " itself: then it comes with it.",
        )
    raise AttributeError(f"module 'sys' has no attribute {name!r}", name=name, obj=sys)


def follow(olds: Mapping[str, Any], ns: Mapping[str, Any]) -> None:
    """Values of names were replaced: where the last error is one of them, so is that."""
    last = vars(sys).get("last_value")
    for name, old in olds.items():
        new = ns.get(name)
        if old is last and new is not last and isinstance(new, BaseException):
            remember(new, frames_of(vars(sys).get("last_traceback")))
            return


def _each(trace: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _traceback(frames: Sequence[Frame]) -> types.TracebackType | None:
    """Return a traceback through frames of these names at these places, each made for it."""
    trace: types.TracebackType | None = None
    for file, line, name, qualified, spot, hide in reversed(frames):
        code = compile(_failing(line, spot), file, "exec")
        code = code.replace(co_name=name, co_qualname=qualified)
        try:
            exec(code, {"__name__": name}, _Elsewhere(hide))  # noqa: S102 - there is no other frame
        except ZeroDivisionError as error:
            made = error.__traceback__
            while made is not None and made.tb_next is not None:
                made = made.tb_next
            assert made is not None
            trace = types.TracebackType(trace, made.tb_frame, made.tb_lasti, line)
    return trace


def _failing(line: int, spot: Sequence[int | None]) -> ast.Module:
    """Return a program that fails in this place without a look at any name."""
    first, last, begin, end = spot
    division = ast.BinOp(ast.Constant(1), ast.Div(), ast.Constant(0))
    module = ast.Module([ast.Expr(division)], [])
    for node in ast.walk(module):
        if isinstance(node, ast.expr | ast.stmt):
            node.lineno, node.end_lineno = first or line, last or line
            node.col_offset, node.end_col_offset = begin or 0, end or 0
    return module
