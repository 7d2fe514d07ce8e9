"""What keeps a part of a variable whose newest value is on the other side.

Owns the memory of it: a walk sees what a generator shares with ``rows``, or a function by its
defaults, only as long as ``rows`` has that value here.  Once the other side has changed it, whoever
uses the generator or the function needs it back.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

from .groups import Survey


class Ties:
    """Names by the roots of what shares an object with their values."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def look(self, survey: Survey, here: Container[str], *, whole: bool) -> None:
        """Learn from a walk over the ``whole``, all names; from another one nothing.

        Of names that are not ``here`` it tells nothing: what was known of them holds.
        """
        if not whole:
            return
        found = dict(survey.held.shares)
        for group in survey.groups:
            if group.names:
                found |= {f"u:{oid}": set(group.names) for oid in group.oids}
        for root, known in self._names.items():
            away = {name for name in known if name not in here}
            if away and (root in found or (root.startswith("u:") and root in survey.by_root)):
                found[root] = found.get(root, set()) | away
        self._names = found

    def of(self, roots: Iterable[str]) -> set[str]:
        """Return the names whose values share an object with any of these."""
        return {name for root in roots for name in self._names.get(root, ())}

    def older(self, survey: Survey, away: Collection[str]) -> set[int]:
        """Return by ``id`` groups of functions and classes of which a part is newer there.

        It came there with a name, and comes back with that.
        """
        nameless = (group for group in survey.groups if away and not group.names)
        return {id(group) for group in nameless if not self.of(group.roots).isdisjoint(away)}
