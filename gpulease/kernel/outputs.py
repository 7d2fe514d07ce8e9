"""``Out``, ``_`` and ``__`` as one sequence over both sides.

Owns the placeholders of results that are not home yet: fetched when they are used, and brought
home before the companion goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.kernel.relay import RemoteResult

_UNDERSCORES = re.compile(r"(?<!\w)(_{1,3}|_\d+)(?!\w)")


class LazyOut(dict[int, Any]):
    """IPython's ``Out``: a placeholder becomes its value when it is read."""

    def __init__(self, content: dict[int, Any], resolve: Callable[[RemoteResult], Any]) -> None:
        super().__init__(content)
        self._resolve = resolve

    def __getitem__(self, key: int) -> Any:
        value = super().__getitem__(key)
        return self._resolve(value) if isinstance(value, RemoteResult) else value

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
            if isinstance(value, RemoteResult):
                self.resolve(value)

    def resolve_all(self) -> list[str]:
        """Bring every result home; return a sentence for each that cannot come."""
        problems = []
        for count, result in list(self._pending.items()):
            try:
                self.resolve(result)
            except GPULeaseError as error:
                problems.append(f"Out[{count}] stays behind: {error.sentence}")
        return problems

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


def _names(source: str) -> Iterator[str]:
    seen = set()
    for match in _UNDERSCORES.finditer(source):
        if match[1] not in seen:
            seen.add(match[1])
            yield match[1]
