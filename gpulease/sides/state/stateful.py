"""State of what a person's own module holds and no cell rebinds: generators, counters, caches.

Only kinds count whose state can be given in plain values and put back in place.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from gpulease.sides import counters
from gpulease.sides.caches import LRU_CACHE, content_of, fill
from gpulease.sides.libraries import library
from gpulease.sides.state.plain import plain_bytes

#: What a cache may remember: it is looked at in every cell.
_MOST = 1_000
#: How far an iterator may be moved on: a third of a second.
_FARTHEST = 10_000_000
_RANGES = tuple({type(iter(range(1))), type(iter(range(1 << 70)))})


class _Kind(NamedTuple):
    of: Callable[[Any], Any]  # None where it cannot be told
    put: Callable[[Any, Any], None]


def state_bytes(value: Any) -> bytes | None:
    """Return the same bytes for equal states, None of what has none that can be told."""
    state = None
    if (kind := _kind(type(value))) is not None:
        with suppress(Exception):  # one that another thread changes meanwhile, or a broken one
            state = kind.of(value)
    return None if state is None else plain_bytes(state)


def is_stateful(kind: type) -> bool:
    """Say whether objects of this type have a state that can be told and put back."""
    return _kind(kind) is not None


def put_state(value: Any, state: Any) -> None:
    """Give an object the state that another one of its kind has."""
    if (kind := _kind(type(value))) is not None:
        kind.put(value, state)


def _kind(kind: type) -> _Kind | None:
    if (found := _KINDS.get(kind)) is not None:
        return found
    numpy, torch = library("numpy.random"), library("torch")
    if numpy is not None and kind is numpy.Generator:
        return _GENERATOR
    if numpy is not None and kind is numpy.RandomState:
        return _RANDOM_STATE
    return _OF_TORCH if torch is not None and kind is torch.Generator else None


def _fill_list(value: Any, state: list[Any]) -> None:
    value.clear()
    value.extend(state)


def _fill_dict(value: Any, state: dict[Any, Any]) -> None:
    value.clear()
    value.update(state)  # a Counter adds, but to nothing


def _fill_array(value: array[Any], state: list[Any]) -> None:
    value[:] = array(value.typecode, state)


def _cache(value: Any) -> Any:
    """Return what a cache remembers, None where that is too much."""
    if value.cache_info().currsize > _MOST:
        return None
    content = content_of(value)
    return None if content[1] is None else content


def _move_on(value: Iterator[Any], steps: int) -> None:
    if 0 < steps <= _FARTHEST:
        deque(itertools.islice(value, steps), maxlen=0)


def _put_count(value: Any, state: tuple[Any, ...]) -> None:
    here = counters.state_of(value)
    step = here[1] if len(here) > 1 else 1
    _move_on(value, round((state[0] - here[0]) / step) if step else 0)


def _left(value: Any) -> int:
    return int(value.__length_hint__())


def _put_left(value: Any, state: int) -> None:
    _move_on(value, _left(value) - state)


def _simple(value: Any) -> Any:
    """Return numpy's own state with lists for arrays."""
    if isinstance(value, dict):
        return {key: _simple(each) for key, each in value.items()}
    if hasattr(value, "tolist"):
        return (str(getattr(value, "dtype", "")), value.tolist())
    return value


def _arrays(value: Any) -> Any:
    numpy = library("numpy")
    if isinstance(value, dict):
        return {key: _arrays(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return numpy.array(value[1], dtype=value[0]) if numpy is not None else value
    return value


def _put_bits(value: Any, state: Any) -> None:
    value.bit_generator.state = _arrays(state)


def _put_torch(value: Any, state: bytes) -> None:
    torch = library("torch")
    assert torch is not None
    value.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


_DICT = _Kind(lambda value: dict(value.items()), _fill_dict)  # in its own order
_KINDS: dict[Any, _Kind] = {
    Random: _Kind(Random.getstate, Random.setstate),
    deque: _Kind(list, _fill_list),
    Counter: _DICT,
    defaultdict: _DICT,
    OrderedDict: _DICT,
    array: _Kind(lambda value: value.tolist(), _fill_array),
    itertools.count: _Kind(counters.state_of, _put_count),
    LRU_CACHE: _Kind(_cache, fill),
    **dict.fromkeys(_RANGES, _Kind(_left, _put_left)),
}
_GENERATOR = _Kind(lambda value: _simple(value.bit_generator.state), _put_bits)
_RANDOM_STATE = _Kind(
    lambda value: _simple(value.get_state(legacy=False)),
    lambda value, state: value.set_state(_arrays(state)),
)
_OF_TORCH = _Kind(
    lambda value: bytes(value.get_state().numpy()) if value.device.type == "cpu" else None,
    _put_torch,
)
