"""What the lease pods of the servers that live now would be made from.

Owns one digest for each class and server, worked out once.
"""

from __future__ import annotations

from collections import Counter

from gpulease.policy.model import GPUClass
from gpulease.providers.kubernetes.api.client import Manifest
from gpulease.providers.kubernetes.api.watch import key_of
from gpulease.providers.kubernetes.manifests.manifest import PodSettings
from gpulease.providers.kubernetes.observed.cluster import Cluster
from gpulease.providers.kubernetes.observed.pods import runs
from gpulease.providers.kubernetes.warm.manifest import shape


class Shapes:
    """The shapes.

    Args:
        namespace: in which servers run.
    """

    def __init__(self, cluster: Cluster, settings: PodSettings, namespace: str) -> None:
        self._cluster = cluster
        self._settings = settings
        self._namespace = namespace
        self._known: dict[str, tuple[GPUClass, dict[str, str]]] = {}  # by class: UID -> shape

    def of(self, gpu_class: GPUClass, server: Manifest) -> str:
        """Return the shape of a server's lease pod of a class."""
        known_class, known = self._known.get(gpu_class.name, (gpu_class, {}))
        found = known.get(str(server["metadata"]["uid"])) if known_class == gpu_class else None
        return found or shape(gpu_class, server, self._settings)

    def all(self, gpu_class: GPUClass) -> dict[str, str]:
        """Return the shapes of all servers, by the server's UID."""
        found = {str(x["metadata"]["uid"]): self.of(gpu_class, x) for x in self._servers()}
        self._known[gpu_class.name] = gpu_class, found
        return found

    def usual(self, gpu_class: GPUClass) -> Manifest | None:
        """Return a server of the shape that most have; ``None`` where there is no server."""
        shapes = self.all(gpu_class)
        often = Counter(shapes.values())
        most = min(often, key=lambda each: (-often[each], each), default="")
        servers = (x for x in self._servers() if shapes[str(x["metadata"]["uid"])] == most)
        return next(servers, None)

    def _servers(self) -> list[Manifest]:
        return [
            each
            for each in self._cluster.pods.all_servers()
            if key_of(each)[0] == self._namespace and runs(each)
        ]
