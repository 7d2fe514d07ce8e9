"""Lets refusals pass without the frames that they came through."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gpulease.errors import GPULeaseError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def without_frames(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let refusals of ``method`` pass with no frame of it.

    A front end keeps the last exception for ``%tb``; the frames of a refused switch would keep
    every value alive that the switch looked at.
    """

    @functools.wraps(method)
    def bare(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except GPULeaseError as error:
            error.__cause__ = error.__context__ = None
            raise error.with_traceback(None) from None

    return bare
