"""What is IPython's own and one over both sides: results, inputs, magics and the last error.

A small program puts what a GPU cell reads of them in place in the companion before the cell.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.kernel.relay import RemoteError, RemoteResult
from gpulease.sides.last_error import current, frames_of
from gpulease.sides.looks import is_a
from gpulease.sides.magics import is_own
from gpulease.sides.names.source import nodes_of

_UNDERSCORES = re.compile(r"(?<!\w)(_{1,3}|_\d+)(?!\w)")

_OUT = re.compile(r"\b(?:Out|_oh)\[(\d+)\]")
_OUT_NAME = re.compile(r"\b(?:Out|_oh)\b")
#: The name under which values of ``Out`` travel to a GPU cell; gone when the cell runs.
CARRIER = "gpulease_out"


class LazyOut(dict[int, Any]):
    """IPython's ``Out``: a placeholder becomes its value when it is read."""

    def __init__(self, content: dict[int, Any], resolve: Callable[[RemoteResult], Any]) -> None:
        super().__init__(content)
        self._resolve = resolve

    def __getitem__(self, key: int) -> Any:
        value = super().__getitem__(key)
        return self._resolve(value) if is_a(value, RemoteResult) else value

    def get(self, key: int, default: Any = None) -> Any:
        """Return ``Out[key]`` or ``default``."""
        return self[key] if key in self else default  # noqa: SIM401 - that is what get is here

    def values(self) -> Any:
        """Return every value, fetched."""
        return [self[key] for key in self]

    def items(self) -> Any:
        """Return every pair, fetched."""
        return [(key, self[key]) for key in self]

    def __copy__(self) -> dict[int, Any]:
        return dict(self.items())


class Results:
    """``Out``, ``_`` and ``__`` as one sequence over both sides.

    A placeholder stands for a result that is still in the companion: ``fetch`` gets its value when
    it is used, and before the companion ends.
    """

    def __init__(self, shell: Any, fetch: Callable[[int], Any]) -> None:
        self._shell = shell
        self._fetch = fetch
        self._pending: dict[int, RemoteResult] = {}

    def add(self, result: RemoteResult) -> None:
        """A placeholder entered ``Out`` and ``_``."""
        self._pending[result.execution_count] = result
        namespace = self._shell.user_ns
        if len(self._pending) >= self._shell.displayhook.cache_size:
            kept = namespace["_oh"]  # IPython drops the oldest: those need not come home
            self._pending = {n: r for n, r in self._pending.items() if dict.get(kept, n) is r}
        if not isinstance(namespace["_oh"], LazyOut):
            lazy = LazyOut(namespace["_oh"], self.resolve)
            namespace["_oh"] = lazy
            if "Out" in namespace:
                namespace["Out"] = lazy
            hidden = self._shell.user_ns_hidden
            hidden["_oh"] = hidden["Out"] = lazy
            self._shell.history_manager.output_hist = lazy

    def resolve(self, result: RemoteResult) -> Any:
        """Return the value for a placeholder and put it wherever the placeholder stands.

        Raises:
            GPULeaseError: the value is gone or cannot travel.
        """
        value = self._fetch(result.execution_count)
        self._pending.pop(result.execution_count, None)
        self._replace(result, value)
        return value

    def before(self, source: str) -> None:
        """Fetch what a home cell reads as ``_``, ``__``, ``___`` or ``_n``."""
        for name in _names(source) if self._pending else ():
            value = self._shell.user_ns.get(name)
            if is_a(value, RemoteResult):
                self.resolve(value)

    def for_away(self, source: str) -> tuple[dict[str, Any], list[str]]:
        """Return what a GPU cell reads of ``_``, ``__``, ``_n``, ``Out``: values and a program.

        The values are home's; the program's lines put them, and those that the companion computed
        itself, under the names that they have at home.  There are none when the cell reads none.
        """
        values: dict[str, Any] = {}
        namespace = self._shell.user_ns
        names = [
            f"{name!r}: {_carried(name, namespace[name], values)}"
            for name in _names(source)
            if name in namespace
        ]
        every = _reads_all(source)
        entries: list[str] = []
        for number in namespace["_oh"] if every else {int(n) for n in _OUT.findall(source)}:
            value = dict.get(namespace["_oh"], number)
            if every or (value is not None and not is_a(value, RemoteResult)):
                entries.append(f"{number}: {_carried(f'Out[{number}]', value, values)}")
        lines = [
            f"get_ipython().push({{{', '.join(names)}}}, interactive=False)" if names else "",
            f"Out.{'become' if every else 'update'}({{{', '.join(entries)}}})" if entries else "",
        ]
        return values, [line for line in lines if line]

    def resolve_all(self) -> list[str]:
        """Bring every result home; return a sentence for each reason why some cannot come."""
        problems: dict[str, list[str]] = {}
        for count, result in list(self._pending.items()):
            try:
                self.resolve(result)
            except GPULeaseError as error:
                problems.setdefault(error.sentence, []).append(f"Out[{count}]")
        return [
            f"{', '.join(outs)} stay{'s' if len(outs) == 1 else ''} behind: {why}"
            for why, outs in problems.items()
        ]

    def _replace(self, result: RemoteResult, value: Any) -> None:
        namespace, hook = self._shell.user_ns, self._shell.displayhook
        for name in ("_", "__", "___", f"_{result.execution_count}"):
            if namespace.get(name) is result:
                namespace[name] = value
                if name in self._shell.user_ns_hidden:
                    self._shell.user_ns_hidden[name] = value
            if getattr(hook, name, None) is result:
                setattr(hook, name, value)
        if dict.get(namespace["_oh"], result.execution_count) is result:
            dict.__setitem__(namespace["_oh"], result.execution_count, value)


def _carried(name: str, value: Any, values: dict[str, Any]) -> str:
    """Return the expression for ``value`` on the GPU, noting in ``values`` what must travel."""
    if is_a(value, RemoteResult):
        return f"Out[{value.execution_count}]"
    values[name] = value
    return f"{CARRIER}[{name!r}]"


def _names(source: str) -> Iterator[str]:
    """Yield what a cell reads of ``_`` and its kin, each once.

    In a text or a comment it is no name, and what ``for _ in`` binds is not read.  Where there is a
    magic, any of its words may be one.
    """
    if not _UNDERSCORES.search(source):
        return
    nodes = nodes_of(source)
    if nodes is None:
        words = _UNDERSCORES.findall(source)
    else:
        found = (node for node in nodes if isinstance(node, ast.Name))
        words = [name.id for name in found if isinstance(name.ctx, ast.Load)]
    yield from dict.fromkeys(word for word in words if _UNDERSCORES.fullmatch(word))


def _reads_all(source: str) -> bool:
    """Say whether a cell reads more of ``Out`` than what a key leads to: its length, say.

    Of a key, ``Out`` beside the GPU says itself where its result is.
    """
    if not _OUT_NAME.search(source):
        return False
    nodes = nodes_of(source)
    if nodes is None:
        return len(_OUT_NAME.findall(source)) > len(_OUT.findall(source))
    return sum(map(_is_out, nodes)) > sum(map(_reads_by_key, nodes))


def _is_out(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("Out", "_oh")


def _reads_by_key(node: ast.AST) -> bool:
    match node:
        case ast.Subscript(value=asked) | ast.Attribute(value=asked, attr="get"):
            return _is_out(asked)
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[asked]):
            return _is_out(asked)
    return False


_INPUTS = re.compile(r"(?<!\w)(?:In|_ih|_i{1,3}|_i(\d+))(?!\w)")
_MAGIC = re.compile(r"^\s*(?:\w+\s*=\s*)?(%%?)([A-Za-z_]\w*)", re.MULTILINE)


def inputs_and_magics(shell: Any, source: str, values: dict[str, Any]) -> list[str]:
    """Return a program's lines for the notebook's inputs and magics that a GPU cell names.

    They read ``values``, which this adds to.
    """
    return [*_inputs(shell, source, values), *_magics(shell, source, values)]


def _inputs(shell: Any, source: str, values: dict[str, Any]) -> list[str]:
    matches = list(_INPUTS.finditer(source))
    if not matches:
        return []
    history = shell.history_manager
    # The cell itself is the last one here; over there IPython enters it when it starts.
    values["In"] = list(history.input_hist_parsed[:-1])
    values["_i"] = [getattr(history, name) for name in ("_i", "_ii", "_iii")]
    numbered = {m[0]: shell.user_ns[m[0]] for m in matches if m[1] and m[0] in shell.user_ns}
    values["_in"] = numbered
    there = "get_ipython().history_manager"
    return [
        f"{there}.input_hist_parsed[:] = {CARRIER}['In']",
        f"{there}._i00, {there}._i, {there}._ii = {CARRIER}['_i']",
        f"get_ipython().push({CARRIER}['_in'], interactive=False)",
    ]


def _magics(shell: Any, source: str, values: dict[str, Any]) -> list[str]:
    lines = []
    for signs, name in dict.fromkeys(_MAGIC.findall(source)):
        kind = "cell" if signs == "%%" else "line"
        function = shell.magics_manager.magics[kind].get(name)
        if is_own(shell, function):
            key = signs + name
            values[key] = function
            lines.append(
                f"get_ipython().register_magic_function({CARRIER}[{key!r}], {kind!r}, {name!r})"
            )
    return lines


_ASKS = re.compile(r"(?<!\w)(?:last_(?:value|type|traceback|exc)|print_last|post_mortem|pm)(?!\w)")
_MODULE = "gpulease.sides.last_error"
_THERE = f"__import__({_MODULE!r}, fromlist=['remember'])"
#: Some error, and not home's.
_UNKNOWN: Any = object()


class LastError:
    """The error that IPython remembers, one on both sides (``sys.last_value`` and its kin).

    Home gets the very exception that a GPU cell raised, not only its text: ``fetch`` gets it with
    its frames.  A GPU cell that asks gets home's; one that does not ask finds no older one.
    """

    def __init__(self, fetch: Callable[[], Any]) -> None:
        self._fetch = fetch
        self._remote: RemoteError | None = None
        #: The companion's last error as home knows it, None where it has none.
        self._there: BaseException | None = None
        self._companion: object = None

    def raised(self, error: BaseException) -> None:
        """A GPU cell ended with ``error``: bring what it raised, where that can travel."""
        self._remote = None
        if isinstance(error, RemoteError):
            with suppress(GPULeaseError):  # it has a part that stays: its name and text are here
                error.original, error.frames = self._fetch()
            self._remote = error
        self._there = error.original or error if isinstance(error, RemoteError) else _UNKNOWN

    def told(self) -> None:
        """The companion ran the lines of ``for_away``."""
        self._there = current()

    def tidy(self) -> None:
        """A home cell ended: keep no error, and no frames of it, that nobody can ask for."""
        if self._there is not None and self._there is not current():
            self._there = _UNKNOWN

    def as_remote(self, error: BaseException | None) -> BaseException | None:
        """Return what shows the companion's traceback for ``error``, where a GPU cell raised it."""
        remote: Any = self._remote
        return remote if remote is not None and error is remote.original else error

    def for_away(self, source: str, values: dict[str, Any], companion: object) -> list[str]:
        """Return the lines of a program that let a GPU cell find home's last error.

        ``values`` gets what they read.  A cell that does not ask gets none, and no older one
        either: code that it calls finds out that home's is newer.  There are no lines where the
        companion has home's.
        """
        if companion is not self._companion:
            self._companion, self._there = companion, None
        error = current()
        if error is None or isinstance(error, RemoteError) or not _ASKS.search(source):
            return [] if error is self._there else [f"{_THERE}.forget({error is not None})"]
        values["last error"] = error
        frames = [tuple(frame) for frame in frames_of(error.__traceback__)]
        return [f"{_THERE}.remember({CARRIER}['last error'], {frames!r})"]
