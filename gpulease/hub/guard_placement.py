"""How a pod's manifest steers it to a node with GPUs: one generator for each way.

Owns selectors, affinities, spreading, tolerations, and what goes past the scheduler.  Pure; it
decides nothing about what to do with what it finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpulease.hub import gpu_names
from gpulease.hub.guard_shape import Part, Path, Rules, items, mapping, text

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
