"""What a namespace looks like from inside: each value, its type, and who is the same as whom.

Runs in the notebook's kernel, after its last cell.  What ``docs/transfer.md`` excepts is left out:
addresses, the order of sets, identity of numbers, strings and tuples, the device shown for a
tensor.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import enum
import fractions
import functools
import json
import pathlib
import random
import re
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import xxhash

from gpulease.sides.libraries import library
from gpulease.sides.looks import is_a
from gpulease.transfer.stayed import Stayed

#: How much text of a value is kept, to show where two of them part, and how much is compared.
_KEPT = 100_000
_OBJECTS = 200_000
_DEPTH = 60
#: Objects of these are known by their type alone: they hold locks, caches and the page's state.
_BY_TYPE = frozenset((
    "matplotlib", "ipywidgets", "logging", "threading", "_thread", "asyncio", "weakref", "IPython",
    "tqdm", "comm", "bokeh", "altair", "_asyncio", "_queue", "queue", "contextvars", "_contextvars",
))  # fmt: skip
#: Nobody relies on which of two equal ones a name has.
_VALUES = frozenset((
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone,
    decimal.Decimal, fractions.Fraction, range, types.GenericAlias, types.UnionType,
))  # fmt: skip
_ITERATORS: tuple[type, ...] = (
    type(iter([])),
    type(iter(())),
    type(iter(range(0))),
    type(iter("")),
    type(iter(b"")),
    type(iter(bytearray())),
    type(reversed([])),
)
#: Shows what lies inside: a value, and its path from the one that holds it.
Down = Callable[[Any, str], str]
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


#: Taken when this is imported, before the first cell: a notebook may replace ``json.dumps``.
to_json = json.JSONEncoder().encode


def picture(space: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return ``values`` (by name: type, text, digest of all of it) and ``aliases``.

    ``aliases`` are lists of paths (``box['in'][0]``) that lead to one object or one memory.
    """
    found = [name for name in names if name in space]
    paths: dict[int, list[str]] = {}
    spans: list[tuple[int, int, str]] = []
    keep: list[Any] = []  # what was made for the look alone, too: its id is not another's
    values = {}
    for name in found:
        text = _Look(paths, spans, keep).text(space[name], name, 0)
        digest = _digest(text.encode("utf-8", "backslashreplace"))
        values[name] = [_kind(space[name]), text[:_KEPT], digest]
    groups = [*paths.values(), *_overlapping(spans)]
    aliases = sorted(sorted(set(group)) for group in groups if len(set(group)) > 1)
    return {"values": values, "aliases": aliases}


def missing(space: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Return the names that have no value here, or one that is on the other side."""
    return [name for name in names if name not in space or is_a(space[name], Stayed)]


def _overlapping(spans: list[tuple[int, int, str]]) -> list[list[str]]:
    """Return the paths of arrays whose memory overlaps: views of one memory are aliases."""
    groups: list[list[str]] = []
    first = end = -1
    for low, high, path in sorted(spans):
        if low >= end:
            groups.append([])
            first = low
        groups[-1].append(f"{path} (from byte {low - first})" if low > first else path)
        end = max(end, high)
    return groups


def user_names(space: dict[str, Any]) -> list[str]:
    """Return the names that a notebook gave, in the order in which it gave them."""
    hidden = space["get_ipython"]().user_ns_hidden if "get_ipython" in space else {}
    return [
        name
        for name, value in list(space.items())
        if not name.startswith("_")
        and not (name in hidden and hidden[name] is value)
        and not isinstance(value, types.ModuleType)
    ]


def _kind(value: Any) -> str:
    kind = value.__class__ if is_a(value, Stayed) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


class _Look:
    """One name's value, walked down; ``paths``, ``spans`` and ``keep`` are of all names."""

    def __init__(
        self, paths: dict[int, list[str]], spans: list[tuple[int, int, str]], keep: list[Any]
    ) -> None:
        self._paths = paths
        self._spans = spans
        self._keep = keep
        self._seen: dict[Any, int] = {}

    def text(self, value: Any, path: str, depth: int) -> str:
        """Return a value as text, objects numbered by first sight."""
        stayed = is_a(value, Stayed)
        simple = None if stayed else _simple(value)
        if simple is not None:
            return simple
        if not stayed and isinstance(value, tuple) and type(value).__module__ != "torch":
            inner = (self.text(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value))
            return f"{_kind(value)}({', '.join(inner)})"
        if depth > _DEPTH or len(self._seen) > _OBJECTS:
            return f"{_kind(value)} ..."
        span = None if stayed else _memory(value)
        if span is not None:
            self._spans.append((*span, path))
        else:
            self._paths.setdefault(id(value), []).append(path)
        if id(value) in self._seen:
            return f"#{self._seen[id(value)]}"
        number = self._seen[id(value)] = len(self._seen)
        self._keep.append(value)
        if stayed:
            return f"#{number}={_kind(value)}"
        try:
            inside = self._inside(value, path, depth + 1)
        except Exception as error:  # noqa: BLE001 - whatever a value's own code raises
            inside = f"{_kind(value)} (no look: {type(error).__name__})"
        return f"#{number}={inside}"

    def _inside(self, value: Any, path: str, depth: int) -> str:
        def down(inner: Any, at: str) -> str:
            return self.text(inner, path + at, depth)

        found = _array(value, down) or _container(value, down)
        if found is not None:
            return found
        if isinstance(value, types.FunctionType):
            return self._function(value, path, down)
        found = _of_language(value, down)
        if found is not None:
            return found
        kind = _kind(value)
        is_iterator = hasattr(value, "__next__") or hasattr(value, "__anext__")
        if kind.partition(".")[0] in _BY_TYPE or is_iterator:
            return kind
        state = sorted(_state(value), key=lambda item: str(item[0]))
        if kind == "numpy.vectorize":
            state = [item for item in state if item[0] != "_ufunc"]  # made at the first call
        if not state or isinstance(value, random.Random):
            return f"{kind} {self._reduced(value, down)}"
        return f"{kind} " + ", ".join(f"{k}: {down(v, f'.{k}')}" for k, v in state)

    def _reduced(self, value: Any, down: Down) -> str:
        """Return what there is of an object without attributes: how it is pickled, or its text."""
        own: Any = type(value).__reduce__
        torch = library("torch")
        if torch is not None and isinstance(value, torch.Generator):
            return down(value.get_state(), ".get_state()")
        if own is not object.__reduce__:
            with contextlib.suppress(Exception):  # what it is by its text will do
                made, args, *state = value.__reduce__()
                self._keep.append((args, state))
                return f"{_kind(made)} {down(args, '.args')} {down(state, '.state')}"
        return _ADDRESS.sub("0x", _repr(value))

    def _function(self, value: types.FunctionType, path: str, down: Down) -> str:
        cells = []
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            self._paths.setdefault(id(cell), []).append(f"{path}<{name}>")
            self._keep.append(cell)
            try:
                cells.append(down(cell.cell_contents, f"<{name}>()"))
            except ValueError:
                cells.append("empty")
        code = value.__code__
        names = (code.co_code.hex(), code.co_names, code.co_varnames)
        return (
            f"function {value.__qualname__} {names} {down(value.__defaults__, '.__defaults__')} "
            f"{cells} {down(value.__dict__, '.__dict__')}"
        )


def _container(value: Any, down: Down) -> str | None:
    kind = _kind(value)
    if isinstance(value, list | deque):
        return f"{kind}[{', '.join(down(v, f'[{i}]') for i, v in enumerate(list(value)))}]"
    if isinstance(value, set | frozenset):
        return f"{kind}{{{', '.join(sorted(down(v, '{}') for v in value))}}}"
    if isinstance(value, bytearray):
        return f"{kind} {bytes(value)!r}"
    if isinstance(value, dict):
        made = down(value.default_factory, "") if isinstance(value, defaultdict) else ""
        # An ordered one keeps its order beside the dictionary that it is.
        items_of: Any = OrderedDict.items if isinstance(value, OrderedDict) else dict.items
        items = (f"{down(k, '')}: {down(v, f'[{k!r:.40}]')}" for k, v in items_of(value))
        return f"{kind}{made}{{{', '.join(items)}}}"
    if type(value) in _ITERATORS:
        over, *state = value.__reduce__()[1:]
        # One at its end travels as a fresh one over nothing: the same, over whichever nothing.
        return f"{kind} {down(over, '.over')} {state}" if over[0] else kind
    return None


def _of_language(value: Any, down: Down) -> str | None:  # noqa: PLR0911 - one a kind
    if type(value) is types.GenericAlias:  # it shows its class's attributes as its own
        return f"alias {down(value.__origin__, '')} {down(value.__args__, '.__args__')}"
    if isinstance(value, type):
        # Of flags, Python remembers which combinations somebody asked for.
        hidden = ("__", "_value2member_map_") if issubclass(value, enum.Enum) else "__"
        inner = {k: v for k, v in vars(value).items() if not k.startswith(hidden)}
        parts = (f"{k}: {down(v, f'.{k}')}" for k, v in sorted(inner.items()))
        return f"class {value.__qualname__} " + ", ".join(parts)
    wrapped = getattr(value, "__wrapped__", None)
    if wrapped is not None and (type(value).__module__ or "").startswith(("jax", "numba.")):
        return f"{_kind(value)} {down(wrapped, '.__wrapped__')}"  # each side compiles it
    if isinstance(value, functools.partial):
        return f"partial {down(value.func, '.func')} {down(value.args, '.args')}"
    if isinstance(value, types.MethodType):
        owner = down(value.__self__, ".__self__")
        return f"method {down(value.__func__, '.__func__')} {owner}"
    if isinstance(value, BaseException):
        cause = down(value.__cause__, ".__cause__")
        return f"{_kind(value)} {down(value.args, '.args')} {cause}"
    return None


def _simple(value: Any) -> str | None:  # noqa: PLR0911 - one a kind
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        if type(value) in (bool, int, float, complex, str, bytes, type(None)):
            return repr(value)
        if not isinstance(value, enum.Enum):
            return f"{_kind(value)} {value!r}"
    if isinstance(value, enum.Enum):
        return f"{_kind(value)}.{value.name}"
    if type(value) in _VALUES or isinstance(value, pathlib.PurePath):
        return repr(value)
    if isinstance(value, type) and value.__module__ != "__main__":
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        return str(getattr(value, "__name__", "builtin"))
    if isinstance(value, types.FunctionType) and value.__module__ != "__main__":
        return f"{value.__module__}.{value.__qualname__}"
    return _immutable(value)


def _immutable(value: Any) -> str | None:
    """Return a library's value that cannot change, without what it has looked up before."""
    numpy, pandas, sympy = map(library, ("numpy", "pandas", "sympy"))
    torch = library("torch")
    if torch is not None and type(value) in (torch.Size, torch.device):
        return repr(value)
    if numpy is not None and isinstance(value, numpy.generic | numpy.dtype):
        return f"{_kind(value)} {value!r}"
    if numpy is not None and value is numpy.random.rand.__self__:
        return "numpy.random"  # scipy's distributions hold it
    if pandas is not None and isinstance(value, pandas.api.extensions.ExtensionDtype):
        return f"{_kind(value)} {value!r}"
    if sympy is not None and isinstance(value, sympy.Basic):
        return str(sympy.srepr(value))
    return None


def _array(value: Any, down: Down) -> str | None:  # noqa: PLR0911 - one a kind
    """Return an array, a tensor or a table by its content, or None for what is none of them."""
    numpy, torch, pandas = map(library, ("numpy", "torch", "pandas"))
    arrow, sympy = library("pyarrow"), library("sympy")
    if sympy is not None and isinstance(value, sympy.MatrixBase):
        return f"{_kind(value)} {sympy.srepr(value)}"
    if arrow is not None and isinstance(value, arrow.Array | arrow.ChunkedArray | arrow.Table):
        kind = value.schema if isinstance(value, arrow.Table) else value.type
        return f"{_kind(value)} {kind} {down(value.to_pylist(), '.to_pylist()')}"
    if numpy is not None and isinstance(value, numpy.ndarray):
        head = f"{_kind(value)} {value.dtype} {value.shape} "
        if value.dtype.hasobject or value.dtype.names:  # between fields may be anything
            return head + str(down(value.tolist(), ".tolist()"))
        return f"{head}{_few(value)} {_digest(value.tobytes())}"
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor(torch, value, down)
    if pandas is not None and isinstance(value, pandas.DataFrame):
        columns = [down(value.iloc[:, i].tolist(), f".iloc[:, {i}]") for i in range(value.shape[1])]
        kinds = [str(kind) for kind in value.dtypes]
        return f"DataFrame {list(value.columns)} {kinds} {value.index.tolist()} {columns}"
    if pandas is not None and isinstance(value, pandas.Series | pandas.Index):
        values = down(value.tolist(), ".tolist()")
        index = value.index.tolist() if isinstance(value, pandas.Series) else ""
        return f"{_kind(value)} {value.dtype} {value.name!r} {index} {values}"
    return None


def _tensor(torch: Any, value: Any, down: Down) -> str:
    if torch.nn.parameter.is_lazy(value):
        return f"{_kind(value)} without a shape yet"
    shape = "nested" if value.is_nested else tuple(value.shape)
    head = f"{_kind(value)} {value.dtype} {shape} {value.requires_grad} "
    grad = None
    with contextlib.suppress(RuntimeError):  # a view whose base was written to says nothing
        grad = value.grad if value.is_leaf else None
    with torch.no_grad():
        plain = value.detach()
        if plain.is_meta:
            return head
        if plain.is_nested:
            return head + down(list(plain.unbind()), ".unbind()")
        if plain.is_quantized:
            head += f"{plain.qscheme()} {plain.dequantize().reshape(-1)[:6].tolist()} "
            plain = plain.int_repr()
        plain = plain if plain.layout is torch.strided else plain.to_dense()
        plain = plain.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        raw = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        # Not every kind of number has a number of Python's.
        few = _few(plain.float() if plain.is_floating_point() else plain)
    return f"{head}{few} {_digest(raw)} {down(grad, '.grad')}"


def _digest(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def _few(value: Any) -> str:
    """Return the first numbers, for people."""
    flat = value.reshape(-1)[:6]
    return str(flat.tolist())


def _memory(value: Any) -> tuple[int, int] | None:
    """Return the memory that an array or a tensor shows: first and one past the last address."""
    numpy, torch = library("numpy"), library("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if torch.nn.parameter.is_lazy(value) or value.layout is not torch.strided:
            return None
        if not value.untyped_storage().nbytes():
            return None
        first = value.untyped_storage().data_ptr()
        return first, first + value.untyped_storage().nbytes()
    if numpy is not None and isinstance(value, numpy.ndarray) and value.nbytes:
        low, high = numpy.lib.array_utils.byte_bounds(value)
        return int(low), int(high)
    return None


def _state(value: Any) -> Iterator[tuple[str, Any]]:
    own = getattr(value, "__dict__", None)
    if isinstance(own, Mapping):  # a proxy may answer with anything
        yield from dict(own).items()
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - whatever a class makes of it
        return f"(no repr: {type(error).__name__})"
