"""The pods that are watched, found by what is asked of them: lease, server, identity.

The tables are kept in step with every change, so that a question costs what its answer is and not
what the cluster is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from gpulease.providers.kubernetes.api.client import (
    Manifest,
)
from gpulease.providers.kubernetes.api.watch import Key, key_of
from gpulease.providers.kubernetes.observed import pods
from gpulease.providers.kubernetes.observed.pods import PodUse


class PodIndex:
    """Every pod that is kept.

    Args:
        instance: which installation this is.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._uses: dict[Key, PodUse] = {}
        self._leases: dict[str, dict[int, dict[int, Manifest]]] = {}
        self._servers: dict[tuple[str, str], dict[Key, Manifest]] = {}
        self._uids: dict[str, Key] = {}
        self._warm: dict[Key, Manifest] = {}

    @property
    def uses(self) -> Collection[PodUse]:
        """What each pod takes that takes devices."""
        return self._uses.values()

    @property
    def leases(self) -> Mapping[str, Mapping[int, Mapping[int, Manifest]]]:
        """The pods of this installation's leases, by lease, attempt and rank."""
        return self._leases

    @property
    def warm(self) -> Mapping[Key, Manifest]:
        """The pods of this installation that stand ready and are nobody's yet."""
        return self._warm

    def use(self, key: Key) -> PodUse | None:
        """Return what a pod takes."""
        return self._uses.get(key)

    def servers(self, user: str, server: str) -> Collection[Manifest]:
        """Return the pods that say that they are this notebook server's."""
        return self._servers.get((user, server), {}).values()

    def all_servers(self) -> Iterator[Manifest]:
        """Yield the pods of all notebook servers."""
        for found in self._servers.values():
            yield from found.values()

    def has(self, uid: str) -> bool:
        """Whether this very pod is there."""
        return uid in self._uids

    def change(self, before: Manifest | None, after: Manifest | None) -> None:
        """Take a change of one pod: ``None`` is no pod."""
        if before is not None:
            self._drop(before)
        if after is not None:
            self._add(after)

    def _add(self, pod: Manifest) -> None:
        key, use = key_of(pod), pods.use_of(pod, self._instance)
        self._uids[use.uid] = key
        if use.asks or use.lease or _claims(pod):
            self._uses[key] = use
        if use.lease:
            attempts = self._leases.setdefault(use.lease, {})
            attempts.setdefault(use.attempt, {})[use.rank] = pod
        if use.warm:
            self._warm[key] = pod
        server = pods.server_of(pod, self._instance)
        if server is not None:
            self._servers.setdefault(server, {})[key] = pod

    def _drop(self, pod: Manifest) -> None:
        key = key_of(pod)
        self._uids.pop(str(pod["metadata"].get("uid", "")), None)
        self._warm.pop(key, None)
        use = self._uses.pop(key, None)
        if use is not None and use.lease:
            attempts = self._leases.get(use.lease, {})
            group = attempts.get(use.attempt, {})
            if group.get(use.rank) is pod:
                del group[use.rank]
            if not group:
                attempts.pop(use.attempt, None)
            if not attempts:
                self._leases.pop(use.lease, None)
        server = pods.server_of(pod, self._instance)
        if server is not None:
            there = self._servers.get(server, {})
            there.pop(key, None)
            if not there:
                self._servers.pop(server, None)


def _claims(manifest: Manifest) -> bool:
    return bool((manifest.get("spec") or {}).get("resourceClaims"))
