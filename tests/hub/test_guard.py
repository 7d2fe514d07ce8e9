"""The manifest guard: every way a GPU comes into a server's pod, and none where there is none."""

import copy
import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.hub import gpu_names, guard, guard_list
from tests.helpers import draws
from tests.hub.pods import (
    ALLOW,
    BAD,
    UNLISTED,
    beside,
    blocker,
    changed,
    clean_pod,
    container,
    expression,
    marked,
    merge,
    preferred,
    required,
    required_fields,
    resources,
    spec,
)

#: The clean pod's own lines are allowed, as a site would.
RULES = guard.Rules(allow=ALLOW)
#: What is known to be a GPU or the way to one, without the list.
KNOWN = guard.Rules(exempt=frozenset({"not_listed"}))
VOID = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


def label(case):
    return re.sub(r"[^-\w.\[\]/]", "", f"{case[0]}-{case[2]}")[-80:]


@pytest.mark.parametrize(("rule", "change", "path"), BAD, ids=map(label, BAD))
def test_each_way_is_found_with_its_place_and_words(rule, change, path):
    found = guard.inspect(changed(change), RULES)
    assert {finding.rule for finding in found} == {rule}
    named = next(finding for finding in found if finding.path == path)
    assert named.what
    assert named.why == guard.RULES[rule][0]
    assert named.next_step == guard.RULES[rule][1]
    # Where its rule does not hold it is nothing.
    exempt = guard.Rules(exempt=frozenset({rule}), allow=ALLOW)
    assert guard.inspect(changed(change), exempt) == ()


def test_every_rule_has_a_case():
    assert {rule for rule, _change, _path in BAD} == set(guard.RULES) - {"not_listed"}


def test_findings_are_frozen():
    (finding,) = guard.inspect(changed(resources("nvidia.com/gpu")), RULES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        finding.what = "nothing"
    assert str(finding).startswith("spec.containers[2].resources.limits.nvidia.com/gpu: 1 of")


def test_a_clean_pod_is_clean_and_stays_as_it_is():
    pod = clean_pod()
    assert guard.inspect(pod, RULES) == ()
    assert guard.strip(pod) == (pod, [])
    assert guard.shield(pod) == pod
    assert pod == clean_pod()


@pytest.mark.parametrize(
    "change",
    [
        spec(nodeSelector={"nvidia.com/gpu.present": "False", "amd.com/gpu": "0"}),
        marked(**{"devices": "3", "nri.io-notes": "x", "dev.gvisors": "x"}),
        spec(tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]),
        required([expression("nvidia.com/gpu.present", "NotIn", "true")]),
        required([expression("nvidia.com/gpu.present", "In", "false")]),
        preferred(expression("cloud.google.com/gke-accelerator", "DoesNotExist")),
        resources("nvidia.com/gpu", 0),
        resources("nvidia.com/gpu", "0.0"),
        resources("hugepages-2Mi", "4Mi"),
        resources("nvidia.com/gpu", None),
        resources("nvidia.com/gpu", "0e3"),
        resources("nvidia.com/gpu", "0k"),
        spec(tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]),
        spec(overhead={"cpu": "250m", "memory": "120Mi"}),
        spec(nodeName=""),
        spec(nodeSelector={"topology.kubernetes.io/zone": "europe-west4-a"}),
        spec(topologySpreadConstraints=[{"topologyKey": "topology.kubernetes.io/zone"}]),
        required_fields([expression("metadata.name", "NotIn", "gpu-1")]),
        beside({"matchLabels": {"app": "jupyterhub", "component": "hub"}}),
        beside(
            {
                "matchLabels": {"component": "hub"},
                "matchExpressions": [expression("gpulease/lease", "DoesNotExist")],
            }
        ),
        spec(initContainers=[blocker()]),
        marked(app="gpulease", component="lease"),
        container(env=[{"name": "nvidia_visible_devices", "value": "all"}, *VOID]),
        container(env=[{"name": "ASCEND_RT_VISIBLE_DEVICES", "value": "0"}, *VOID]),
        spec(containers=[{"name": "x", "env": None, "resources": None, "volumeMounts": None}]),
        {"spec": {"affinity": None, "tolerations": None, "volumes": None}},
    ],
)
def test_what_asks_for_nothing_or_steers_away_is_left_alone(change):
    pod = changed(change)
    assert guard.inspect(pod, RULES) == ()
    assert guard.strip(pod) == (pod, [])


def test_a_site_names_its_own_resources_and_nodes():
    pod = changed(resources("example.com/card"))
    pod["spec"]["nodeSelector"]["example.com/rack"] = "7"
    assert {f.rule for f in guard.inspect(pod, RULES)} == {"not_listed"}
    rules = guard.Rules(resources=("example.com/*",), node_keys=("example.com/rack",), allow=ALLOW)
    assert [f.rule for f in guard.inspect(pod, rules)] == ["device_resource", "node_placement"]


def test_stripping_an_alternative_leaves_the_others():
    pod = changed(required([expression("nvidia.com/gpu.present")]))
    stripped, _found = guard.strip(pod)
    assert stripped["spec"]["affinity"] == clean_pod()["spec"]["affinity"]


def test_stripping_the_only_condition_leaves_no_term_that_matches_nothing():
    pod = clean_pod()
    pod["spec"]["affinity"] = required([expression("nvidia.com/gpu.present")])["spec"]["affinity"]
    stripped, _found = guard.strip(pod)
    assert "affinity" not in stripped["spec"]


def test_a_stripped_volume_takes_its_mounts_along():
    pod = changed(spec(volumes=[{"name": "gpu", "hostPath": {"path": "/dev/nvidia0"}}]))
    pod["spec"]["containers"][0]["volumeMounts"].append({"name": "gpu", "mountPath": "/dev/gpu"})
    stripped, found = guard.strip(pod)
    assert len(found) == 2
    assert stripped == clean_pod()


def test_variables_become_void_rather_than_absent():
    pod = clean_pod()
    for kind in ("containers", "initContainers"):
        for each in pod["spec"][kind]:
            each["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    stripped, _found = guard.strip(pod)
    void = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert [each["env"] for each in stripped["spec"]["containers"]] == [void, void]
    assert stripped["spec"]["initContainers"][0]["env"] == void


def test_the_shield_covers_every_container_whose_image_might_ask():
    pod = clean_pod()
    for kind in ("containers", "initContainers"):
        for each in pod["spec"][kind]:
            del each["env"]
    pod["spec"]["containers"][0]["env"] = [{"name": "A", "value": "b"}]
    shielded = guard.shield(pod)
    void = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert shielded["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}, void]
    assert shielded["spec"]["containers"][1]["env"] == [void]
    assert shielded["spec"]["initContainers"][0]["env"] == [void]
    assert "env" not in pod["spec"]["containers"][1]


def test_the_shield_covers_what_config_maps_and_secrets_bring():
    """A container's own entry wins over ``envFrom``, which nobody can look into here."""
    pod = clean_pod()
    source = [{"configMapRef": {"name": "course"}}]
    pod["spec"]["containers"][0]["envFrom"] = source
    pod["spec"]["initContainers"][0]["envFrom"] = source
    before = [dict(each) for each in pod["spec"]["containers"][0]["env"]]
    shielded = guard.shield(pod)["spec"]
    assert shielded["containers"][0]["env"][: len(before)] == before
    for each in (shielded["containers"][0], shielded["initContainers"][0]):
        told = {entry["name"]: entry["value"] for entry in each["env"]}
        assert {name: told[name] for name in gpu_names.OF_OTHER_VENDORS} == dict.fromkeys(
            gpu_names.OF_OTHER_VENDORS, ""
        )
        assert told["NVIDIA_VISIBLE_DEVICES"] in {"void", "none"}
    assert shielded["containers"][1] == pod["spec"]["containers"][1]


def test_a_namespace_open_to_admin_access_is_found():
    (finding,) = guard.inspect_namespace_labels(
        {"resource.kubernetes.io/admin-access": "true", "site": "own"}
    )
    assert finding.rule == "admin_access"
    assert guard.inspect_namespace_labels({"resource.kubernetes.io/admin-access": "false"}) == ()


#: Several ways at once, in any order, on a pod that may lack whole parts.
several = st.builds(
    lambda changes, without: _built(changes, without),
    st.lists(st.sampled_from([change for _rule, change, _path in BAD]), max_size=6),
    st.sets(st.sampled_from(sorted(clean_pod()["spec"]))),
)


def _built(changes, without):
    pod = clean_pod()
    for part in without:
        del pod["spec"][part]
    for change in changes:
        merge(pod, copy.deepcopy(change))
    return pod


@given(several)
def test_strip_leaves_nothing_to_find_and_is_idempotent(pod):
    before = copy.deepcopy(pod)
    stripped, found = guard.strip(pod)
    assert pod == before
    assert guard.inspect(stripped, KNOWN) == ()
    assert guard.strip(stripped) == (stripped, [])
    assert {f.rule for f in found} == {f.rule for f in guard.inspect(pod, KNOWN)}
    assert guard.inspect(guard.shield(stripped), KNOWN) == ()


@given(several)
def test_strip_takes_nothing_else(pod):
    """What has nothing to do with GPUs is as it was: every clean container, volume, toleration."""
    stripped, found = guard.strip(pod)
    touched = {finding.place[:3] for finding in found}
    for kind in ("containers", "initContainers"):
        for index, each in enumerate(pod["spec"].get(kind, [])):
            if ("spec", kind, index) not in touched:
                assert stripped["spec"][kind][index] == each
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        names = [each["name"] for each in pod["spec"].get(kind, [])]
        assert [each["name"] for each in stripped["spec"].get(kind, [])] == names
    if ("spec", "securityContext", "windowsOptions") not in touched:
        assert stripped["spec"].get("securityContext") == pod["spec"].get("securityContext")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def _paths(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from _paths(child, (*path, key))


@st.composite
def mutants(draw):
    """A pod with something of its own anywhere, and up to three places replaced by anything."""
    changes = [change for _line, change, _path in (*BAD, *UNLISTED)]
    pod = changed(draw(st.sampled_from(changes)))
    if draw(st.booleans()):
        pod["spec"]["initContainers"] = [blocker()]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(sorted(filter(None, _paths(pod)), key=str)))
        inner = pod
        for key in at[:-1]:
            inner = inner[key]
        inner[at[-1]] = draw(json_values)
        if not isinstance(pod.get("spec"), dict):
            break
    return pod


@given(mutants())
@settings(max_examples=draws(40))
def test_a_manifest_of_any_shape_is_read_without_a_fault(pod):
    guard.inspect(pod, RULES)
    stripped, _found = guard.strip(pod)
    assert guard.inspect(guard.shield(stripped), KNOWN) == ()


@pytest.mark.parametrize(
    "entry",
    [
        {"env": [{"name": ["NVIDIA_VISIBLE_DEVICES"], "value": {}}]},
        {"volumeMounts": [{"name": {"a": 1}, "mountPath": []}]},
        {"securityContext": {"capabilities": {"add": [["SYS_ADMIN"], None, 7]}}},
        {"command": 7, "name": "block-cloud-metadata"},
    ],
)
def test_names_that_are_no_names_raise_nothing(entry):
    for kind in ("containers", "initContainers"):
        guard.inspect(changed(container(kind, **entry)), RULES)


# What is on the list, and what is not.


@pytest.mark.parametrize(("line", "change", "path"), UNLISTED, ids=map(label, UNLISTED))
def test_what_is_not_listed_is_found_and_one_line_allows_it(line, change, path):
    (finding,) = guard.inspect(changed(change), RULES)
    assert (finding.rule, finding.path, finding.allow) == ("not_listed", path, line)
    assert "gpulease doctor --hub" in finding.next_step
    # Taking it away would start a server without one of its volumes: it is refused in any mode.
    assert guard.strip(changed(change), RULES) == (changed(change), [])
    allowed = guard.Rules(allow=(*ALLOW, line))
    assert guard.inspect(changed(change), allowed) == ()


def test_every_kind_of_the_list_has_a_case():
    kinds = {line.split(" ")[0] for line, _change, _path in UNLISTED}
    volumes = set(guard_list.VOLUMES_BY)
    # Switches that are on are all known for what they give.
    assert kinds == {row.kind for row in guard_list.ROWS} - {"privilege"} | volumes


@given(st.text(max_size=12), st.text(max_size=12))
def test_a_line_allows_itself_and_a_star_anything(one, other):
    pattern = one.replace("*", "") + "*"
    assert guard_list.allows((pattern,), pattern[:-1] + other)
    plain = one.replace("*", "")
    assert guard_list.allows((plain,), other) is (plain == other)


def test_the_charts_own_container_may_close_the_metadata_address():
    assert guard.inspect(changed(spec(initContainers=[blocker()])), RULES) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"image": "evil.example/k8s-network-tools:4.4.0"},
        {"command": ["sh", "-c", "true"]},
        {"command": [*blocker()["command"], "--help"]},
        {"command": [*blocker()["command"][:6], "$(curl x)", *blocker()["command"][7:]]},
        {"args": ["x"]},
        {"name": "other"},
        {"volumeMounts": [{"name": "home", "mountPath": "/usr"}]},
        {"env": [{"name": "LD_PRELOAD", "value": "/home/x.so"}]},
        {"envFrom": [{"configMapRef": {"name": "x"}}]},
        {"lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}},
        {"restartPolicy": "Always"},
        {"workingDir": "/home"},
        {
            "securityContext": {
                "privileged": True,
                "capabilities": {"add": ["NET_ADMIN", "SYS_ADMIN"]},
            }
        },
    ],
)
def test_a_container_that_only_resembles_it_is_refused(change):
    found = guard.inspect(changed(spec(initContainers=[blocker(**change)])), RULES)
    assert "privileged" in {finding.rule for finding in found}


def test_the_charts_container_is_an_init_container_and_nothing_else():
    found = guard.inspect(changed(spec(containers=[blocker()])), RULES)
    assert {finding.rule for finding in found} == {"privileged", "not_listed"}


def test_a_sites_own_image_of_the_network_tools():
    pod = changed(spec(initContainers=[blocker(image="own.example/tools:1")]))
    assert guard.inspect(pod, RULES)
    assert guard.inspect(pod, guard.Rules(allow=ALLOW, blocker_image="own.example/tools:*")) == ()


@pytest.mark.parametrize(
    "pattern",
    [
        getattr(gpu_names, name)
        for name in (
            *("RESOURCE", "NODE_KEY", "NODE_VALUE", "VARIABLE", "NOTE", "RUNTIME", "SCHEDULER"),
            *("HOST_PATH", "CAPABILITY", "DEVICE_LIST", "NO_GPU"),
        )
    ],
)
def test_patterns_hold_nothing_that_re2_lacks(pattern):
    assert not re.search(r"\(\?[=!<]|\\[1-9]", pattern)
