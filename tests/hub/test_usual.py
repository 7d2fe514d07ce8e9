"""What servers of usual sites have passes as shipped, and no line of it lets a GPU in."""

import copy
import itertools
import re

import pytest

from gpulease.hub import gpu_names, guard, guard_list
from gpulease.hub.guard_list import USUAL
from tests.hub.pods import (
    ALLOW,
    BAD,
    changed,
    container,
    expression,
    merge,
    required,
    resources,
    spec,
)
from tests.hub.usual_sites import SITES

RULES = guard.Rules(allow=ALLOW)


def words_of(pattern):
    """Every line that a pattern with braces stands for."""
    parts = re.split(r"\{(.*?)\}", pattern)
    choices = [each.split(",") if n % 2 else [each] for n, each in enumerate(parts)]
    return ["".join(each) for each in itertools.product(*choices)]


LINES = [
    f"{kind} {word}" for kind, each in USUAL.items() for line in each for word in words_of(line)
]
FIRST = [f"{kind} {words_of(line)[0]}" for kind, each in USUAL.items() for line in each]


@pytest.mark.parametrize("site", SITES)
def test_a_usual_site_passes_with_the_shipped_list(site):
    assert guard.inspect(changed(SITES[site]), RULES) == ()


def change_of(line):
    """A pod's change that needs this line."""
    kind, _, what = line.partition(" ")
    key, equals, value = what.partition("=")
    if kind == "resource":
        return resources(what)
    if kind in {"hostPath", "csi"}:
        field = "path" if kind == "hostPath" else "driver"
        return spec(volumes=[{"name": "more", kind: {field: what}}])
    if kind == "capability":
        capability, _, name = what.partition(" in ")
        secured = {"capabilities": {"add": [capability]}}
        return container("initContainers", name=name, securityContext=secured)
    if kind == "node":
        condition = expression(key, "In", value) if equals else expression(key)
        return required([condition])
    if kind == "toleration":
        return spec(tolerations=[{"key": key, "value": value} if equals else {"key": key}])
    if kind == "spread":
        return spec(topologySpreadConstraints=[{"topologyKey": what}])
    return spec(**{kind: what})


def test_each_usual_line_is_exact_and_names_no_gpu():
    for line in LINES:
        kind, _, what = line.partition(" ")
        key, _, value = what.partition("=")
        assert "*" not in line
        assert guard_list.is_listed(line)
        assert not gpu_names.is_resource(what) or kind != "resource", line
        assert not gpu_names.is_gpu_node(key, value), line
        assert not gpu_names.is_host_device(what) or kind != "hostPath", line


@pytest.mark.parametrize("line", FIRST)
def test_a_usual_line_passes_and_another_name_does_not(line):
    """One line of each pattern, in a pod; a letter more before or behind is another name."""
    assert guard.inspect(changed(change_of(line)), RULES) == ()
    kind, _, what = line.partition(" ")
    for other in (f"{line}x", f"{kind} x{what}"):
        assert not guard_list.is_listed(other)


def test_with_any_usual_line_every_way_to_a_gpu_is_still_refused():
    """A line of each kind beside each rule's first case."""
    bad = {rule: (change, path) for rule, change, path in reversed(BAD)}
    for line in {each.split(" ")[0]: each for each in LINES}.values():
        for rule, (change, path) in bad.items():
            pod = changed(change_of(line))
            merge(pod, copy.deepcopy(change))
            assert rule in {each.rule for each in guard.inspect(pod, RULES)}, (line, path)


@pytest.mark.parametrize(
    "name",
    [
        *("n1-standard-4", "g2-standard-8", "a2-highgpu-1g", "g5.xlarge", "p3.2xlarge"),
        *("Standard_NC6s_v3", "Standard_ND96asr_v4", "Standard_NV12s_v3", "trn1.2xlarge"),
    ],
)
def test_instance_types_with_gpus_or_room_for_them_are_not_listed(name):
    for label in ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"):
        assert not guard_list.is_listed(f"node {label}={name}")


def test_the_meshes_capability_is_their_init_containers_alone():
    secured = {"capabilities": {"add": ["NET_ADMIN"]}}
    for kind, name in (
        ("containers", "istio-init"),
        ("ephemeralContainers", "istio-init"),
        ("initContainers", "other"),
        ("initContainers", "istio-init-2"),
    ):
        pod = changed(container(kind, name=name, securityContext=secured))
        assert {each.rule for each in guard.inspect(pod, RULES)} == {"not_listed"}, (kind, name)


def test_the_exact_line_to_allow_is_printed_where_it_refuses():
    (found,) = guard.inspect(changed(spec(nodeSelector={"pool": "big.x"})), RULES)
    (line,) = re.findall(r"add '(.*?)' to `servers\.allow`", str(found))
    assert line == "node pool=big.x"
    assert (
        guard.inspect(
            changed(spec(nodeSelector={"pool": "big.x"})), guard.Rules(allow=(*ALLOW, line))
        )
        == ()
    )
