"""``Out``, ``_`` and ``__`` as one sequence over both sides.

A placeholder stands for a result that is still in the companion: the result is fetched when it is
used, and before the companion ends.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.kernel.relay import RemoteResult
from gpulease.sides.looks import is_a
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
    """The placeholders of one kernel; ``fetch`` gets the value of a cell's result."""

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
