"""What a piece of code is about to reach, as it is before it runs.

A snapshot holds no value: names with the ``id`` of what they are bound to, digests of what the code
can reach, and the states of the generators, which it puts back.  State inside installed modules is
not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpulease.sides.names.analysis import cell_use
from gpulease.transfer import state
from gpulease.transfer.glance import Glance
from gpulease.transfer.refuse import Limit, RefusedError
from gpulease.transfer.roots import Hidden

Digests = dict[frozenset[str], bytes]


@dataclass(frozen=True)
class Snapshot:
    """One look; ``Snapshots.changed`` compares with it."""

    bound: dict[str, int]
    names: tuple[str, ...]
    digests: Digests
    generators: dict[str, Any]

    def put_back(self) -> None:
        """Put every generator of this process back to where it was."""
        state.apply(self.generators)


class Snapshots:
    """Takes and compares snapshots of one namespace."""

    def __init__(self, namespace: dict[str, Any], hidden: Hidden) -> None:
        self._ns = namespace
        self._glance = Glance(namespace, hidden)

    def take(self, source: str, limit: Limit) -> Snapshot | None:
        """Return what ``source`` may reach, as it is; None where that cannot be, or costs more."""
        use = cell_use(source)
        try:
            digests = self._glance.digests(["*"] if use.unbounded else use.touched, limit)
        except RefusedError:
            return None
        return Snapshot(self._bound(), _names_of(digests), digests, state.read())

    def changed(self, before: Snapshot) -> str:
        """Return what is not as it was, as words after "it", "" for nothing."""
        now = self._bound()
        moved = [
            n for n in sorted(before.bound.keys() | now.keys()) if before.bound.get(n) != now.get(n)
        ]
        if moved:
            return f"had bound {moved[0]}"
        try:
            found = self._glance.digests(before.names)
        except RefusedError:
            return "had changed a variable"
        for roots, digest in found.items():
            if digest != before.digests.get(roots):
                return f"had changed {(_names_of([roots]) or ['a function or class'])[0]}"
        return ""

    def _bound(self) -> dict[str, int]:
        return {name: id(self._ns[name]) for name in self._glance.names() if name in self._ns}


def _names_of(all_roots: Any) -> tuple[str, ...]:
    return tuple(sorted(root[2:] for roots in all_roots for root in roots if root[0] == "n"))
