"""A look at what code can reach, of one namespace without another side."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .pickler import Met
from .refuse import Limit
from .roots import Hidden, Roots, meant
from .survey import Survey, collector_waits
from .tables import Counterparts


class Glance:
    """Main thread only."""

    def __init__(self, namespace: dict[str, Any], hidden: Hidden) -> None:
        self._roots = Roots(namespace, hidden, {})
        self._namespace = namespace
        self._classes = Counterparts()
        self._others = Counterparts()
        self._stays = Counterparts()

    def names(self) -> list[str]:
        """Return the person's names."""
        return list(self._roots.values())

    def digests(
        self, names: Collection[str], limit: Limit | None = None
    ) -> dict[frozenset[str], bytes]:
        """Return digests of what code that reads these names can reach ("*": all), by roots.

        Raises RefusedError for what cannot be packed, or where it is more than the limit.
        """
        values = self._roots.values()
        wanted = set(values) if "*" in names else meant(names, values) & values.keys()
        with collector_waits():
            while True:
                survey = self._survey({"n:" + name: values[name] for name in wanted}, limit)
                more: set[str] = set()
                for each in survey.components:
                    if each.error is not None:
                        raise each.error
                    reads = each.reads()
                    more |= values.keys() if reads is None else reads & values.keys()
                if more <= wanted:
                    return {each.roots: each.digest for each in survey.components}
                wanted |= more
                del survey

    def _survey(self, values: dict[str, Any], limit: Limit | None) -> Survey:
        met = Met("s", self._namespace, self._classes, self._others, self._stays)
        met.limit = limit
        survey = Survey(met, values, self._roots.known())
        survey.run({})
        return survey
