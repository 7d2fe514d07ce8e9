"""How a manifest is walked: paths, places, and reading what may have any shape.

The guard's parts share these helpers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from gpulease.hub import gpu_names

#: Keys and list indexes from the top of a manifest.
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Rules:
    """What a site adds to the guard's own rules, or takes from them.

    Attributes:
        resources: more resource names that are devices (``*`` matches anything).
        node_keys: more keys of labels and taints of nodes with GPUs (``*`` matches anything).
        exempt: rules that do not apply here.
        allow: lines that a server may have beside the shipped ones.
        blocker_image: of the chart's container ``block-cloud-metadata`` (``*`` matches anything).
    """

    resources: tuple[str, ...] = ()
    node_keys: tuple[str, ...] = ()
    exempt: frozenset[str] = field(default_factory=frozenset)
    allow: tuple[str, ...] = ()
    blocker_image: str = "quay.io/jupyterhub/k8s-network-tools:*"

    def is_device(self, name: str) -> bool:
        """Whether a resource of this name is a device."""
        also = any(fnmatchcase(name, pattern) for pattern in self.resources)
        return also or gpu_names.is_resource(name)

    def is_gpu_node(self, key: str, value: str = "") -> bool:
        """Whether a node label or taint marks nodes with GPUs."""
        also = any(fnmatchcase(key, pattern) for pattern in self.node_keys)
        return also or gpu_names.is_gpu_node(key, value)


@dataclass(frozen=True)
class Part:
    """One part of a manifest: where it is, what stands there, and what may stand there instead."""

    path: Path
    what: str
    instead: Any = None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the members of a list as mappings, none of anything else."""
    return [mapping(item) for item in value] if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return what stands where a name should; what is no string has none that means anything."""
    if isinstance(value, str):
        return value
    return "" if value is None else str(value)
