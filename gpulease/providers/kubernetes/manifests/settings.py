"""What a site says of its cluster, beside the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpulease.providers.kubernetes.manifests.manifest import PodSettings


@dataclass(frozen=True)
class Settings:
    """What a site says of its cluster.

    Attributes:
        pod: of all lease pods.
        namespaces: patterns of the namespaces in which notebook servers run, of whichever hub.
        bind_timeout: seconds a pod may wait for its place.
        attach_timeout: seconds a volume may take to attach.
        rate: pods created a second.
        agents: namespace and service account of the node agents.
        hubs: those of ``namespaces`` that are a further hub's, by its name.
    """

    pod: PodSettings
    namespaces: tuple[str, ...]
    bind_timeout: float = 10.0
    attach_timeout: float = 20.0
    rate: float = 10.0
    agents: tuple[str, str] = ("gpulease", "gpulease-agent")
    hubs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
