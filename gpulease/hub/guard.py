"""The manifest guard: a notebook server's pod must not have, nor find the way to, a GPU.

A pure function over the pod as it is sent to the API server (plain dicts, Kubernetes' own names),
so it sees what profiles, group overrides, hooks and extra configuration have made of it together.
``inspect`` says what is wrong, ``strip`` takes it out, ``shield`` sets what every container of a
server needs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpulease.hub import gpu_names, guard_places
from gpulease.hub.guard_list import CONTAINERS
from gpulease.hub.guard_shape import Part, Path, Rules, items, mapping, text

#: A pod as JSON.
Manifest = dict[str, Any]

#: Rule -> (why it matters, what the admin can do).
RULES: Final[Mapping[str, tuple[str, str]]] = {
    "device_resource": (
        "It binds a GPU to the server for as long as the server runs.",
        "Remove it from extra_resource_limits, extra_resource_guarantees, extra_pod_config,"
        " extra_container_config and from the profile's or group's overrides.",
    ),
    "claim": (
        "A resource claim binds a device to the server for as long as it runs.",
        "Remove resourceClaims from extra_pod_config and claims from the containers' resources.",
    ),
    "admin_access": (
        "It opens devices that others hold.",
        "Remove it; only the node agent looks at devices of others.",
    ),
    "node_placement": (
        "The server would sit on a node with GPUs, where it takes the room of those who lease one.",
        "Remove it from node_selector, node_affinity, pod_affinity and extra_pod_config, or steer"
        " the other way (NotIn).",
    ),
    "toleration": (
        "It lets the server onto nodes that are kept for GPUs.",
        "Name the taints that servers may tolerate, one by one, and none of a GPU.",
    ),
    "runtime_class": (
        "This runtime puts the node's devices into containers.",
        "Remove runtime_class and runtimeClassName; lease pods get theirs from the GPU class.",
    ),
    "visible_devices": (
        "A GPU runtime gives the devices named there without any resource being asked for.",
        "Remove the variable from environment, extra_container_config and extra containers.",
    ),
    "host_device": (
        "It opens the node's devices, or what hands them out, to the server.",
        "Remove the volume and its mounts.",
    ),
    "device_list": (
        "The GPU runtime reads mounts at this path as a list of devices to give.",
        "Remove the mount.",
    ),
    "privileged": (
        "A privileged container sees every device of its node.",
        "Set privileged to false, or exempt this rule where servers never run on GPU nodes.",
    ),
    "capability": (
        "With this capability a container comes at its node's devices.",
        "Remove it from container_security_context and extra_container_config.",
    ),
    "host_namespace": (
        "It makes the server a part of its node, whose processes and devices are then in reach.",
        "Remove it from extra_pod_config and the security contexts.",
    ),
    "sharing_note": (
        "Injectors and GPU sharing layers read it as an ask for a device.",
        "Remove it from extra_annotations and extra_labels.",
    ),
    "lease_label": (
        "By it the lease service and the network and admission policies know a lease's pod.",
        "Remove it from extra_labels.",
    ),
    "scheduler": (
        "This scheduler hands out GPUs.",
        "Remove scheduler_name, or exempt this rule where it places every pod of the cluster.",
    ),
    "not_listed": (
        "It is not among what a server without a GPU may have.",
        "If it leads to no GPU, allow it: add {line!r} to `servers.allow` of gpulease's chart, or"
        " to `c.GPULeaseSpawner.gpulease_allow` without it. `gpulease doctor --hub` prints the"
        " lines of all profiles.",
    ),
}


@dataclass(frozen=True)
class Violation:
    """One thing in a manifest that gives, or leads to, a GPU.

    Attributes:
        rule: which rule found it, a key of ``RULES``.
        place: where it stands: keys and list indexes from the top.
        what: what stands there.
        why: what it would do.
        next_step: what an admin can do about it.
        instead: what ``strip`` puts there; ``None`` takes it out.
        allow: the line by which a site would allow it, where there is one.
    """

    rule: str
    place: Path
    what: str
    why: str
    next_step: str
    instead: Any = field(default=None, compare=False)
    allow: str = ""

    @property
    def path(self) -> str:
        """The place as an admin writes it: ``spec.containers[0].env[2]``."""
        text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in self.place)
        return text.lstrip(".")

    def __str__(self) -> str:
        return f"{self.path}: {self.what}. {self.why} {self.next_step}"


def inspect(pod: Mapping[str, Any], rules: Rules | None = None) -> tuple[Violation, ...]:
    """Return everything in ``pod`` that gives or leads to a GPU, or that is not on the list.

    In order of place; what one of the other rules names is not named as unlisted again.
    """
    rules = rules or Rules()
    found = _known(pod, rules)
    if "not_listed" not in rules.exempt:
        # What an exempt rule names the site has allowed by that.
        named = {place.path for _rule, place in guard_places.places(pod, rules)}
        found += [
            _finding("not_listed", place, line)
            for place, line in guard_places.not_listed(pod, rules)
            if not any(place.path[: len(other)] == other for other in named)
        ]
    return tuple(sorted(found, key=lambda finding: _order(finding.place)))


def _known(pod: Mapping[str, Any], rules: Rules) -> list[Violation]:
    """Return what gives or leads to a GPU by a name that is known."""
    return [
        _finding(rule, place)
        for rule, place in guard_places.places(pod, rules)
        if rule not in rules.exempt
    ]


def strip(pod: Mapping[str, Any], rules: Rules | None = None) -> tuple[Manifest, list[Violation]]:
    """Return a copy of ``pod`` without what is known to give a GPU, and what was found.

    What becomes empty by that goes too: an empty node selector term would match no node at all.
    What is merely not listed stays, for a server without one of its volumes is of no use: inspect
    the copy.
    """
    rules = rules or Rules()
    clean: Manifest = copy.deepcopy(dict(pod))
    removed: list[Violation] = []
    while found := sorted(_known(clean, rules), key=lambda finding: _order(finding.place)):
        for finding in reversed(found):  # the last first, so that list indexes stay right
            _mend(clean, finding)
        removed += found
    return clean, removed


def shield(pod: Mapping[str, Any]) -> Manifest:
    """Return a copy of ``pod`` whose every container tells the NVIDIA runtime to give nothing.

    An image may carry ``NVIDIA_VISIBLE_DEVICES=all`` itself; only the container's own entry wins.
    It also wins over what ``envFrom`` brings, from where other vendors' variables may come, too.
    """
    shielded: Manifest = copy.deepcopy(dict(pod))
    for container in _containers(shielded):
        env = container.get("env") or []
        named = {text(entry.get("name")) for entry in items(env)}
        values = {"NVIDIA_VISIBLE_DEVICES": "void"}
        if container.get("envFrom"):
            values |= dict.fromkeys(gpu_names.OF_OTHER_VENDORS, "")
        missing = [{"name": k, "value": v} for k, v in values.items() if k not in named]
        if missing and isinstance(env, list):
            container["env"] = [*env, *missing]
    return shielded


def inspect_namespace_labels(labels: Mapping[str, str]) -> tuple[Violation, ...]:
    """Return the labels that would open a user's namespace to DRA admin access."""
    return tuple(
        _finding("admin_access", Part(("metadata", "labels", key), f"label {key}"))
        for key, value in sorted(labels.items())
        if key == guard_places.ADMIN_ACCESS_LABEL and value.lower() == "true"
    )


def _finding(rule: str, place: Part, allow: str = "") -> Violation:
    why, next_step = RULES[rule]
    if allow:
        next_step = next_step.format(line=allow)
    return Violation(rule, place.path, place.what, why, next_step, place.instead, allow)


def _order(place: Path) -> tuple[tuple[bool, int, str], ...]:
    return tuple(
        (isinstance(part, str), part if isinstance(part, int) else 0, str(part)) for part in place
    )


def _containers(pod: Manifest) -> Iterator[MutableMapping[str, Any]]:
    spec = mapping(pod.get("spec"))
    for kind in CONTAINERS:
        listed = spec.get(kind)
        for container in listed if isinstance(listed, list) else []:
            if isinstance(container, MutableMapping):
                yield container


def _mend(pod: Manifest, finding: Violation) -> None:
    """Put ``instead`` at the finding's place, or take it out with what becomes empty by that."""
    parents: list[Any] = [pod]
    for part in finding.place[:-1]:
        parents.append(parents[-1][part])
    if finding.instead is not None:
        parents[-1][finding.place[-1]] = finding.instead
        return
    for depth in range(len(finding.place) - 1, 0, -1):
        del parents[depth][finding.place[depth]]
        if parents[depth] or _is_kept(finding.place[:depth]):
            return


def _is_kept(place: Path) -> bool:
    """Whether what stands at ``place`` stays even when empty: the pod's parts and containers."""
    return len(place) < 2 or (len(place) in {2, 3} and place[1] in CONTAINERS)
