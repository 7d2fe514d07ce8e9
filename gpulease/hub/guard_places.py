"""Where in a pod's manifest a GPU can stand, and how a pod is steered to a node with GPUs.

One generator for each rule of the guard: the shape of a pod as far as devices go, selectors,
affinities, spreading, tolerations, and what goes past the scheduler.  Pure; each generator yields
the rule and the place, and decides nothing about what to do with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpulease.hub import gpu_names, guard_lines
from gpulease.hub.guard_list import CONTAINERS
from gpulease.hub.guard_shape import Part, Path, Rules, items, mapping, text
from gpulease.protocol import labels

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_NODE: Final[Path] = ("spec", "affinity", "nodeAffinity")
_POD: Final[Path] = ("spec", "affinity", "podAffinity")
#: Operators that steer towards what they name; ``NotIn`` and ``DoesNotExist`` steer away.
_TOWARDS: Final = frozenset({"In", "Exists"})


def steering(spec: Mapping[str, Any], rules: Rules) -> Iterator[tuple[str, Part]]:
    """Yield each rule that the placement of a pod breaks, with the place."""
    for key, value in mapping(spec.get("nodeSelector")).items():
        if rules.is_gpu_node(key, text(value)):
            at: Path = ("spec", "nodeSelector", key)
            yield "node_placement", Part(at, f"node selector {key}={value}")
    if spec.get("nodeName"):
        # Past the scheduler no taint counts, and no device is counted.
        yield "node_placement", Part(("spec", "nodeName"), f"node name {spec['nodeName']}")
    affinity = mapping(spec.get("affinity"))
    yield from _beside_nodes(mapping(affinity.get("nodeAffinity")), rules)
    yield from _beside_pods(mapping(affinity.get("podAffinity")), rules)
    for index, spread in enumerate(items(spec.get("topologySpreadConstraints"))):
        # Nodes that lack the label get no pod at all.
        if rules.is_gpu_node(text(spread.get("topologyKey"))):
            at = ("spec", "topologySpreadConstraints", index)
            yield "node_placement", Part(at, f"spread over {spread['topologyKey']}")
    yield from _tolerations(spec, rules)


def _tolerations(spec: Mapping[str, Any], rules: Rules) -> Iterator[tuple[str, Part]]:
    for index, toleration in enumerate(items(spec.get("tolerations"))):
        key, value = text(toleration.get("key")), text(toleration.get("value"))
        at = ("spec", "tolerations", index)
        if not key:
            yield "toleration", Part(at, "toleration of every taint")
        elif rules.is_gpu_node(key, value):
            yield "toleration", Part(at, f"toleration of {key}{value and '='}{value}")


def _beside_nodes(affinity: Mapping[str, Any], rules: Rules) -> Iterator[tuple[str, Part]]:
    required = mapping(affinity.get(_REQUIRED))
    for index, term in enumerate(items(required.get("nodeSelectorTerms"))):
        for place in _term((*_NODE, _REQUIRED, "nodeSelectorTerms", index), term, rules):
            yield "node_placement", place
    for index, weighted in enumerate(items(affinity.get(_PREFERRED))):
        # A preference is taken out as a whole: half of it would prefer something else.
        for place in _term((), mapping(weighted.get("preference")), rules):
            path = (*_NODE, _PREFERRED, index)
            yield "node_placement", Part(path, f"preferred {place.what}")
            break


def _term(path: Path, term: Mapping[str, Any], rules: Rules) -> Iterator[Part]:
    for kind in ("matchExpressions", "matchFields"):
        for index, expression in enumerate(items(term.get(kind))):
            key, operator = text(expression.get("key")), text(expression.get("operator"))
            values = _values(expression)
            if _leads(key, operator, values, rules):
                what = f"node affinity {key} {operator} {', '.join(values)}".rstrip()
                yield Part((*path, kind, index), what)


def _leads(key: str, operator: str, values: list[str], rules: Rules) -> bool:
    """Whether a condition on nodes leads to those with GPUs."""
    if operator in {"Gt", "Lt"}:
        # Both need the label, which may be 0 on a node with GPUs: ``nvidia.com/gpu.count``.
        return rules.is_gpu_node(key)
    if operator in _TOWARDS:
        return any(rules.is_gpu_node(key, value) for value in values or [""])
    # Not where it says that there is none: that is where there is one.
    away = any(value.lower() in gpu_names.OFF for value in values)
    return operator == "NotIn" and away and rules.is_gpu_node(key)


def _beside_pods(affinity: Mapping[str, Any], rules: Rules) -> Iterator[tuple[str, Part]]:
    for index, term in enumerate(items(affinity.get(_REQUIRED))):
        if why := _pods(term, rules):
            yield "node_placement", Part((*_POD, _REQUIRED, index), f"pod affinity {why}")
    for index, weighted in enumerate(items(affinity.get(_PREFERRED))):
        if why := _pods(mapping(weighted.get("podAffinityTerm")), rules):
            yield "node_placement", Part((*_POD, _PREFERRED, index), f"preferred {why}")


def _pods(term: Mapping[str, Any], rules: Rules) -> str:
    """Return how a term leads to pods that sit on nodes with GPUs, "" where it does not."""
    topology = text(term.get("topologyKey"))
    if rules.is_gpu_node(topology):
        return f"within {topology}"
    selector = mapping(term.get("labelSelector"))
    marks = [(key, text(value)) for key, value in mapping(selector.get("matchLabels")).items()]
    for expression in items(selector.get("matchExpressions")):
        if text(expression.get("operator")) in _TOWARDS:
            key = text(expression.get("key"))
            marks += [(key, value) for value in _values(expression) or [""]]
    return next((f"to {k}={v}" for k, v in marks if rules.is_gpu_node(k, v)), "")


def _values(expression: Mapping[str, Any]) -> list[str]:
    values = expression.get("values")
    return [text(value) for value in values] if isinstance(values, list) else []


#: Switches with which a pod is its node's own, or nearly.
_HOST: Final = ("hostPID", "hostIPC", "hostNetwork")
_WINDOWS: Final[Path] = ("securityContext", "windowsOptions", "hostProcess")
#: With this label a namespace's claims may open devices that others hold.
ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"


def places(pod: Mapping[str, Any], rules: Rules) -> Iterator[tuple[str, Part]]:
    """Yield each rule that something in ``pod`` breaks, with the place."""
    spec = mapping(pod.get("spec"))
    yield from _notes(mapping(pod.get("metadata")))
    yield from _lease_marks(mapping(mapping(pod.get("metadata")).get("labels")))
    yield from _resources(("spec", "resources"), mapping(spec.get("resources")), rules)
    for index, claim in enumerate(items(spec.get("resourceClaims"))):
        yield "claim", Part(("spec", "resourceClaims", index), f"claim {claim.get('name')!r}")
    overhead = {"limits": spec.get("overhead")}
    for _rule, place in _resources((), overhead, rules):
        yield "device_resource", Part(("spec", "overhead", place.path[-1]), place.what)
    yield from steering(spec, rules)
    for key, rule, pattern in (
        ("runtimeClassName", "runtime_class", gpu_names.is_gpu_runtime),
        ("schedulerName", "scheduler", gpu_names.is_gpu_scheduler),
    ):
        if pattern(text(spec.get(key))):
            yield rule, Part(("spec", key), f"{key} {spec[key]}")
    for key in _HOST:
        if spec.get(key) is True:
            yield "host_namespace", Part(("spec", key), f"{key}: true", instead=False)
    yield from _host_process(("spec",), spec)
    volumes = _device_volumes(spec)
    for index, name in volumes.items():
        yield "host_device", Part(("spec", "volumes", index), f"volume {name!r} of the node")
    for kind in CONTAINERS:
        for index, container in enumerate(items(spec.get(kind))):
            path = ("spec", kind, index)
            yield from _container(path, container, frozenset(volumes.values()), rules)
    yield from _admin_access((), pod)


def not_listed(pod: Mapping[str, Any], rules: Rules) -> Iterator[tuple[Part, str]]:
    """Yield what a server's pod has and the list has not: the place, and the line it would take."""
    spec = mapping(pod.get("spec"))
    for found in guard_lines.unlisted(spec, rules.allow, rules.blocker_image):
        line = found.ways[0]
        yield Part(found.path, line), line


def _notes(metadata: Mapping[str, Any]) -> Iterator[tuple[str, Part]]:
    for kind in ("annotations", "labels"):
        for key, value in mapping(metadata.get(kind)).items():
            if key == ADMIN_ACCESS_LABEL:
                yield "admin_access", Part(("metadata", kind, key), f"{kind[:-1]} {key}")
            elif gpu_names.is_note(key, text(value)):
                yield "sharing_note", Part(("metadata", kind, key), f"{kind[:-1]} {key}={value}")


def _lease_marks(marks: Mapping[str, Any]) -> Iterator[tuple[str, Part]]:
    """Find the labels by which the lease service, network and admission policies know its pods."""
    for key in (labels.LEASE, labels.ATTEMPT):
        if key in marks:
            yield "lease_label", Part(("metadata", "labels", key), f"label {key}={marks[key]}")
    kind = marks.get(labels.COMPONENT)
    if marks.get(labels.NAME) == labels.APP and kind is not None:
        at = ("metadata", "labels", labels.NAME)
        yield "lease_label", Part(at, f"label {labels.NAME}={labels.APP} of a {kind} pod")


def _resources(
    path: Path, resources: Mapping[str, Any], rules: Rules
) -> Iterator[tuple[str, Part]]:
    for kind in ("limits", "requests"):
        for name, quantity in mapping(resources.get(kind)).items():
            if rules.is_device(name) and not gpu_names.is_zero(quantity):
                yield "device_resource", Part((*path, kind, name), f"{quantity} of {name}")
    for index, claim in enumerate(items(resources.get("claims"))):
        yield "claim", Part((*path, "claims", index), f"claim {claim.get('name')!r}")


def _container(
    path: Path, container: Mapping[str, Any], device_volumes: frozenset[str], rules: Rules
) -> Iterator[tuple[str, Part]]:
    yield from _resources((*path, "resources"), mapping(container.get("resources")), rules)
    for index, entry in enumerate(items(container.get("env"))):
        name = text(entry.get("name"))
        value = None if entry.get("valueFrom") else entry.get("value") or ""
        if gpu_names.gives_devices(name, value):
            shown = "a value from elsewhere" if value is None else value
            instead = {"name": name, "value": "void"}
            yield "visible_devices", Part((*path, "env", index), f"{name}={shown}", instead)
    for index, mount in enumerate(items(container.get("volumeMounts"))):
        at = (*path, "volumeMounts", index)
        if text(mount.get("name")) in device_volumes:
            yield "host_device", Part(at, f"mount of volume {text(mount.get('name'))!r}")
        elif gpu_names.is_device_list(text(mount.get("mountPath"))):
            yield "device_list", Part(at, f"mount at {mount['mountPath']}")
    yield from _host_process(path, container)
    if path[1] == "initContainers" and guard_lines.is_blocker(container, rules.blocker_image):
        return
    security = mapping(container.get("securityContext"))
    at = (*path, "securityContext")
    if security.get("privileged") is True:
        yield "privileged", Part((*at, "privileged"), "privileged: true", instead=False)
    added = mapping(security.get("capabilities")).get("add")
    for index, name in enumerate(added if isinstance(added, list) else []):
        if gpu_names.opens_the_node(text(name)):
            place = Part((*at, "capabilities", "add", index), f"capability {text(name)}")
            yield "capability", place


def _host_process(path: Path, value: Mapping[str, Any]) -> Iterator[tuple[str, Part]]:
    security = mapping(value.get("securityContext"))
    if mapping(security.get("windowsOptions")).get("hostProcess") is True:
        yield "host_namespace", Part((*path, *_WINDOWS), "hostProcess: true", instead=False)


def _device_volumes(spec: Mapping[str, Any]) -> dict[int, str]:
    """Return index -> name of the volumes that are devices of the node."""
    return {
        index: text(volume.get("name"))
        for index, volume in enumerate(items(spec.get("volumes")))
        if volume.get("hostPath") is not None
        and gpu_names.is_host_device(text(mapping(volume["hostPath"]).get("path")))
    }


def _admin_access(path: Path, value: Any) -> Iterator[tuple[str, Part]]:
    """Find ``adminAccess: true`` wherever it stands."""
    children: list[tuple[str | int, Any]] = []
    if isinstance(value, Mapping):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    for key, child in children:
        if key == "adminAccess" and child is True:
            yield "admin_access", Part((*path, key), "adminAccess: true", instead=False)
        else:
            yield from _admin_access((*path, key), child)
