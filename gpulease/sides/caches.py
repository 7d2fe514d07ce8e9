"""What ``functools.lru_cache`` remembers: read from a cached function, and put into another one.

Nothing of Python's own says which calls a cache holds, nor takes one.  It is read from what the
cached function refers to, and written by calling it while the function under it answers what was
remembered; none of the function's own code runs.
"""

from __future__ import annotations

import functools
import gc
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

LRU_CACHE: Any = type(functools.lru_cache(len))
#: What ``lru_cache`` itself puts among the attributes.
_ITS_OWN = frozenset({"__wrapped__", "cache_parameters"})
#: Counts of hits and misses are made by calling: a tenth of a second at most.
_MOST_CALLS = 1_000_000

Call = tuple[tuple[Any, ...], dict[str, Any], Any]
#: Attributes, remembered calls (oldest first; None: cannot be told), hits and misses.
Content = tuple[dict[str, Any], list[Call] | None, int, int]


def reduce(cached: Any) -> Any:
    """Reduce a cached function to the function, its bounds and what it remembers."""
    bounds = cached.cache_parameters()
    arguments = (cached.__wrapped__, bounds["maxsize"], bounds["typed"])
    return make, arguments, content_of(cached), None, None, fill


def make(function: Any, maxsize: int | None, typed: bool) -> Any:
    """Return ``function`` under an empty cache."""
    return functools.lru_cache(maxsize=maxsize, typed=typed)(function)


def content_of(cached: Any) -> Content:
    """Return what is in a cached function."""
    attributes = {name: value for name, value in vars(cached).items() if name not in _ITS_OWN}
    info = cached.cache_info()
    return attributes, _calls(cached), info.hits, info.misses


def fill(cached: Any, content: Content) -> None:
    """Make a cached function hold ``content``; raises what the hash of an argument raises."""
    attributes, calls, hits, misses = content
    space = vars(cached)
    for name in space.keys() - attributes.keys() - _ITS_OWN:
        del space[name]
    space.update(attributes)
    function = _replaceable(cached.__wrapped__)
    if calls is None or function is None:
        return
    cached.cache_clear()
    with _answering(function) as answer:
        failed = min(misses - len(calls), _MOST_CALLS)  # or forgotten again
        for _ in range(failed):
            try:
                cached()
            except _NotRememberedError:
                continue
        for args, kwargs, result in calls:
            answer.result = [result]
            cached(*args, **kwargs)
    if calls:  # the latest one stays the latest
        args, kwargs, _ = calls[-1]
        again = functools.partial(cached, *args, **kwargs)
        deque((again() for _ in range(min(hits, _MOST_CALLS))), maxlen=0)


def _calls(cached: Any) -> list[Call] | None:
    """Return the remembered calls, oldest first; None where this Python keeps them otherwise."""
    held = gc.get_referents(cached)
    function = cached.__wrapped__
    if _replaceable(function) is None:
        return None
    found = [n for n, each in enumerate(held) if each is function and type(held[n - 1]) is dict]
    if not found:
        return None
    at = found[-1] - 1
    kept, mark = held[at], held[at + 2]
    if cached.cache_parameters()["maxsize"] is None:
        pairs = list(kept.items())
    else:  # each is a key, its result, and the type of what links it to the next one
        linked = held[1:at]
        pairs = list(zip(linked[::3], linked[1::3], strict=False))
    if len(pairs) != len(kept) or any(key not in kept for key, _ in pairs):
        return None
    typed = cached.cache_parameters()["typed"]
    return [(*_arguments(key, mark, typed), result) for key, result in pairs]


def _arguments(key: Any, mark: object, typed: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that a key was made from (see ``functools._make_key``)."""
    if type(key) is not tuple:
        return (key,), {}
    at = next((n for n, part in enumerate(key) if part is mark), None)
    if at is None:
        return key[: len(key) // 2] if typed else key, {}
    rest = key[at + 1 :]
    named = rest[: 2 * ((len(rest) - at) // 3)] if typed else rest
    return key[:at], dict(zip(named[::2], named[1::2], strict=True))


# ---- a function that answers for a moment


class _NotRememberedError(Exception):
    """A call that raised, or that was forgotten since: it counts, and leaves nothing."""


@dataclass
class _Answer:
    """What is called in place of a function: by this thread, and by others as ever."""

    otherwise: Callable[..., Any]
    thread: int
    result: list[Any] | None = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if threading.get_ident() != self.thread:
            return self.otherwise(*args, **kwargs)
        if self.result is None:
            raise _NotRememberedError
        return self.result[0]


def _stand_in(*_args: Any, **_kwargs: Any) -> Any:
    _answer: Any = "answer"  # this constant is replaced
    return _answer(_args, _kwargs)


def _replaceable(function: Any) -> types.FunctionType | None:
    """Return the function of Python's under a cache, None where there is another callable."""
    function = function.__func__ if type(function) is types.MethodType else function
    return function if type(function) is types.FunctionType else None


@contextmanager
def _answering(function: types.FunctionType) -> Iterator[_Answer]:
    """Let ``function`` answer what it is told, while the body runs.

    The function under a cache cannot be replaced, but what a function does can be.
    """
    code = function.__code__
    same = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    same.__kwdefaults__ = function.__kwdefaults__
    answer = _Answer(same, threading.get_ident())
    constants = (answer if each == "answer" else each for each in _stand_in.__code__.co_consts)
    function.__code__ = _stand_in.__code__.replace(
        co_consts=tuple(constants), co_freevars=code.co_freevars
    )
    try:
        yield answer
    finally:
        function.__code__ = code
