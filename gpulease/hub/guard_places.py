"""Where in a pod's manifest a GPU can stand: one generator for each rule of the guard.

Owns the shape of a pod as far as devices go.  Pure; each generator yields the rule and the place,
and decides nothing about what to do with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from gpulease.hub import gpu_names

#: Keys and list indexes from the top of a manifest.
Path = tuple[str | int, ...]

CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
#: With this label a namespace's claims may open devices that others hold.
ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"

_NODE_AFFINITY: Final[Path] = ("spec", "affinity", "nodeAffinity")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
#: Operators that steer towards what they name; ``NotIn`` and ``DoesNotExist`` steer away.
_TOWARDS: Final = frozenset({"In", "Exists", "Gt", "Lt"})


@dataclass(frozen=True)
class Rules:
    """What a site adds to the guard's own rules, or takes from them.

    Attributes:
        resources: more resource names that are devices (``*`` matches anything).
        node_keys: more keys of labels and taints of nodes with GPUs (``*`` matches anything).
        exempt: rules that do not apply here.
    """

    resources: tuple[str, ...] = ()
    node_keys: tuple[str, ...] = ()
    exempt: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Place:
    """One place in a manifest, what stands there, and what may stand there instead."""

    path: Path
    what: str
    instead: Any = None


def places(pod: Mapping[str, Any], rules: Rules) -> Iterator[tuple[str, Place]]:
    """Yield each rule that something in ``pod`` breaks, with the place."""
    spec = _mapping(pod.get("spec"))
    yield from _notes(_mapping(pod.get("metadata")))
    yield from _resources(("spec", "resources"), _mapping(spec.get("resources")), rules)
    for index, claim in enumerate(_items(spec.get("resourceClaims"))):
        yield "claim", Place(("spec", "resourceClaims", index), f"claim {claim.get('name')!r}")
    yield from _placement(spec, rules)
    volumes = _device_volumes(spec)
    for index, name in volumes.items():
        yield "host_device", Place(("spec", "volumes", index), f"volume {name!r} of the node")
    for kind in CONTAINERS:
        for index, container in enumerate(_items(spec.get(kind))):
            path = ("spec", kind, index)
            yield from _container(path, container, frozenset(volumes.values()), rules)
    yield from _admin_access((), pod)


def _notes(metadata: Mapping[str, Any]) -> Iterator[tuple[str, Place]]:
    for kind in ("annotations", "labels"):
        for key, value in _mapping(metadata.get(kind)).items():
            if key == ADMIN_ACCESS_LABEL:
                yield "admin_access", Place(("metadata", kind, key), f"{kind[:-1]} {key}")
            elif gpu_names.is_note(key, str(value)):
                yield "sharing_note", Place(("metadata", kind, key), f"{kind[:-1]} {key}={value}")


def _resources(
    path: Path, resources: Mapping[str, Any], rules: Rules
) -> Iterator[tuple[str, Place]]:
    for kind in ("limits", "requests"):
        for name, quantity in _mapping(resources.get(kind)).items():
            if _is_device(name, rules) and not gpu_names.is_zero(quantity):
                yield "device_resource", Place((*path, kind, name), f"{quantity} of {name}")
    for index, claim in enumerate(_items(resources.get("claims"))):
        yield "claim", Place((*path, "claims", index), f"claim {claim.get('name')!r}")


def _container(
    path: Path, container: Mapping[str, Any], device_volumes: frozenset[str], rules: Rules
) -> Iterator[tuple[str, Place]]:
    yield from _resources((*path, "resources"), _mapping(container.get("resources")), rules)
    for index, entry in enumerate(_items(container.get("env"))):
        name = str(entry.get("name", ""))
        value = None if entry.get("valueFrom") else entry.get("value") or ""
        if gpu_names.gives_devices(name, value):
            shown = "a value from elsewhere" if value is None else value
            instead = {"name": name, "value": "void"}
            yield "visible_devices", Place((*path, "env", index), f"{name}={shown}", instead)
    for index, mount in enumerate(_items(container.get("volumeMounts"))):
        at = (*path, "volumeMounts", index)
        if mount.get("name") in device_volumes:
            yield "host_device", Place(at, f"mount of volume {mount.get('name')!r}")
        elif gpu_names.is_device_list(str(mount.get("mountPath", ""))):
            yield "device_list", Place(at, f"mount at {mount['mountPath']}")
    security = _mapping(container.get("securityContext"))
    if security.get("privileged") is True:
        yield (
            "privileged",
            Place((*path, "securityContext", "privileged"), "privileged: true", instead=False),
        )


def _device_volumes(spec: Mapping[str, Any]) -> dict[int, str]:
    """Return index -> name of the volumes that are devices of the node."""
    return {
        index: str(volume.get("name", ""))
        for index, volume in enumerate(_items(spec.get("volumes")))
        if volume.get("hostPath") is not None
        and gpu_names.is_host_device(str(_mapping(volume["hostPath"]).get("path", "")))
    }


def _placement(spec: Mapping[str, Any], rules: Rules) -> Iterator[tuple[str, Place]]:
    for key, value in _mapping(spec.get("nodeSelector")).items():
        if _is_gpu_node(key, str(value), rules):
            path = ("spec", "nodeSelector", key)
            yield "node_placement", Place(path, f"node selector {key}={value}")
    yield from _affinity(spec, rules)
    for index, toleration in enumerate(_items(spec.get("tolerations"))):
        key, value = str(toleration.get("key") or ""), str(toleration.get("value") or "")
        at = ("spec", "tolerations", index)
        if not key:
            yield "toleration", Place(at, "toleration of every taint")
        elif _is_gpu_node(key, value, rules):
            yield "toleration", Place(at, f"toleration of {key}{value and '='}{value}")
    for key, rule, pattern in (
        ("runtimeClassName", "runtime_class", gpu_names.is_gpu_runtime),
        ("schedulerName", "scheduler", gpu_names.is_gpu_scheduler),
    ):
        if isinstance(spec.get(key), str) and pattern(spec[key]):
            yield rule, Place(("spec", key), f"{key} {spec[key]}")


def _affinity(spec: Mapping[str, Any], rules: Rules) -> Iterator[tuple[str, Place]]:
    affinity = _mapping(_mapping(spec.get("affinity")).get("nodeAffinity"))
    required = _mapping(affinity.get(_REQUIRED))
    for index, term in enumerate(_items(required.get("nodeSelectorTerms"))):
        path = (*_NODE_AFFINITY, _REQUIRED, "nodeSelectorTerms", index, "matchExpressions")
        yield from _expressions(path, term, rules)
    for index, weighted in enumerate(_items(affinity.get(_PREFERRED))):
        # A preference is taken out as a whole: half of it would prefer something else.
        preference = _mapping(weighted.get("preference"))
        for _rule, place in _expressions((), preference, rules):
            path = (*_NODE_AFFINITY, _PREFERRED, index)
            yield "node_placement", Place(path, f"preferred {place.what}")
            break


def _expressions(path: Path, term: Mapping[str, Any], rules: Rules) -> Iterator[tuple[str, Place]]:
    for index, expression in enumerate(_items(term.get("matchExpressions"))):
        key, operator = str(expression.get("key", "")), expression.get("operator")
        values = [str(value) for value in expression.get("values") or [""]]
        if operator in _TOWARDS and any(_is_gpu_node(key, value, rules) for value in values):
            what = f"node affinity {key} {operator} {', '.join(values)}".rstrip()
            yield "node_placement", Place((*path, index), what)


def _admin_access(path: Path, value: Any) -> Iterator[tuple[str, Place]]:
    """Find ``adminAccess: true`` wherever it stands."""
    children: list[tuple[str | int, Any]] = []
    if isinstance(value, Mapping):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    for key, child in children:
        if key == "adminAccess" and child is True:
            yield "admin_access", Place((*path, key), "adminAccess: true", instead=False)
        else:
            yield from _admin_access((*path, key), child)


def _is_device(name: str, rules: Rules) -> bool:
    also = any(fnmatchcase(name, pattern) for pattern in rules.resources)
    return also or gpu_names.is_resource(name)


def _is_gpu_node(key: str, value: str, rules: Rules) -> bool:
    also = any(fnmatchcase(key, pattern) for pattern in rules.node_keys)
    return also or gpu_names.is_gpu_node(key, value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> Sequence[Mapping[str, Any]]:
    return [_mapping(item) for item in value] if isinstance(value, list) else []
