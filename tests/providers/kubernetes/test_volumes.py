import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.providers.kubernetes.pod_resources.volumes import KnownNode, Situation, decide
from tests.providers.kubernetes.server_pods import (
    CPU,
    GPU_A,
    GPU_B,
    HOME,
    claim,
    notebook,
    server,
    situation,
    volume,
)

RWX, RWO, ROX, ONE_POD = "ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"


def decided(seen, pod=None):
    pod = pod or server()
    return decide(pod, notebook(pod), seen)


@pytest.mark.parametrize(
    ("seen", "way", "code", "node"),
    [
        (situation(RWX), "mount", "many", ""),
        (situation(RWX, RWO), "mount", "many", ""),
        (situation(ROX), "mount", "read_only", ""),
        (situation(ONE_POD), "mirror", "one_pod", ""),
        (situation(), "mirror", "claim_unbound", ""),
        (situation(RWO), "mirror", "other_node", ""),
        (situation(RWO, place=None), "mirror", "other_node", ""),
        (situation(RWO, place=GPU_A), "mount", "same_node", "gpu-1"),
        (situation(RWO, place=GPU_A, candidates=(GPU_B,)), "mirror", "other_node", ""),
        (situation(RWO, place=GPU_A, pv=volume(zone="a")), "mount", "same_node", "gpu-1"),
        (situation(RWO, place=GPU_A, pv=volume(zone="c")), "mirror", "other_node", ""),
        (situation(RWO, place=GPU_A, granted="gpu-1"), "mount", "same_node", "gpu-1"),
        (situation(RWO, place=GPU_A, granted="gpu-2"), "mirror", "other_node", ""),
        (situation(RWX, granted="gpu-2"), "mount", "many", ""),
        (situation(RWX, pv=volume(zone="b")), "mount", "many", ""),
        (situation(RWX, pv=volume(zone="c")), "mirror", "out_of_reach", ""),
        (situation(ROX, pv=volume(zone="c")), "mirror", "out_of_reach", ""),
        (situation(RWX, because="It would not attach."), "mirror", "mirror_forced", ""),
    ],
)
def test_the_home_is_mounted_where_the_claim_allows_and_mirrored_else(seen, way, code, node):
    files = decided(seen)
    assert (files.way, files.code, files.node) == (way, code, node)
    assert files.why.endswith(".")
    mounted = [mount["mountPath"] for mount in files.mounts]
    assert mounted == ([HOME] if way == "mount" else [])


def test_the_admin_reads_whether_the_servers_node_cannot_serve_or_is_full():
    assert "node cpu-1, which cannot serve" in decided(situation(RWO)).why
    full = decided(situation(RWO, place=GPU_A, granted="gpu-2"))
    assert "node gpu-1, which has nothing free" in full.why
    assert "its node, which cannot serve" in decided(situation(RWO, place=None)).why


def test_a_claim_that_is_not_bound_yet_is_not_mounted():
    seen = Situation({"claim-jane": {"spec": {"accessModes": [RWX]}}}, {}, CPU, (GPU_A,), HOME)
    assert decided(seen).code == "claim_unbound"


def test_a_home_to_read_only_is_mounted_so():
    assert decided(situation(ROX)).mounts[0]["readOnly"] is True
    assert "readOnly" not in decided(situation(RWX)).mounts[0]


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ({"emptyDir": {}}, "no_claim"),
        ({"hostPath": {"path": "/"}}, "no_claim"),
        ({"nfs": {"server": "a", "path": "/"}}, "shared"),
    ],
)
def test_a_home_that_is_no_claim(source, code):
    files = decided(situation(RWX), server(volumes=[{"name": "home", **source}]))
    assert files.code == code
    assert files.way == ("mount" if code == "shared" else "mirror")


def test_a_home_on_no_volume_is_mirrored():
    pod = server()
    notebook(pod)["volumeMounts"] = [{"name": "home", "mountPath": "/home/jovyan2"}]
    assert decided(situation(RWX), pod).code == "no_home_volume"


def test_the_deepest_mount_at_the_home_is_the_home_and_sub_paths_are_kept():
    pod = server()
    notebook(pod)["volumeMounts"] = [
        {"name": "disk", "mountPath": "/"},
        {"name": "home", "mountPath": HOME, "subPath": "home/jane"},
    ]
    files = decided(situation(RWX), pod)
    assert files.mounts == ({"name": "home", "mountPath": HOME, "subPath": "home/jane"},)
    notebook(pod)["volumeMounts"][1]["subPathExpr"] = "$(WHO)"
    assert decided(situation(RWX), pod).code == "sub_path"


def course(mode, **mount):
    pod = server()
    pod["spec"]["volumes"] += [
        {"name": "course", "persistentVolumeClaim": {"claimName": "course"}},
        {"name": "keys", "secret": {"secretName": "hub"}},
        {"name": "shared", "nfs": {"server": "a", "path": "/data", "readOnly": True}},
    ]
    notebook(pod)["volumeMounts"] += [
        {"name": "course", "mountPath": "/course", **mount},
        {"name": "keys", "mountPath": "/keys"},
        {"name": "shared", "mountPath": "/data", "readOnly": True},
    ]
    return pod, Situation(
        {
            "claim-jane": claim("claim-jane", RWO, volume="pv-2"),
            "course": claim("course", mode),
        },
        {"pv-1": volume(), "pv-2": volume("pv-2")},
        CPU,
        (GPU_A,),
        HOME,
    )


def test_course_data_is_on_both_sides_even_when_the_home_is_mirrored():
    pod, seen = course(ROX, readOnly=True)
    files = decided(seen, pod)
    assert files.way == "mirror"
    assert files.mounts == (
        {"name": "course", "mountPath": "/course", "readOnly": True},
        {"name": "shared", "mountPath": "/data", "readOnly": True},
    )
    assert files.left_out == ()


def test_data_that_only_one_node_may_hold_is_left_out_and_said():
    pod, seen = course(RWO)
    files = decided(seen, pod)
    assert [mount["mountPath"] for mount in files.mounts] == ["/data"]
    ((path, why),) = files.left_out
    assert path == "/course"
    assert "which cannot serve" in why


def test_data_beside_the_home_never_ties_a_lease_to_one_node():
    pod, seen = course(RWO)
    claims = {**seen.claims, "claim-jane": claim("claim-jane", RWX, volume="pv-2")}
    here = Situation(claims, seen.volumes, GPU_A, (GPU_A, GPU_B), HOME)
    files = decided(here, pod)
    assert (files.way, files.node) == ("mount", "")
    assert [path for path, _ in files.left_out] == ["/course"]
    once = Situation({**seen.claims}, seen.volumes, GPU_A, (GPU_A, GPU_B), HOME)
    files = decided(once, pod)
    assert (files.way, files.node, files.left_out) == ("mount", "gpu-1", ())


places = st.builds(
    KnownNode,
    st.sampled_from(["n1", "n2", "n3"]),
    st.fixed_dictionaries({"zone": st.sampled_from("ab")}),
)
modes = st.sets(st.sampled_from([RWX, RWO, ROX, ONE_POD])).map(sorted)
volumes = st.sampled_from([None, volume(), volume(zone="a"), volume(zone="b")])


@given(modes, st.none() | places, st.lists(places, max_size=3), volumes)
def test_nothing_is_mounted_that_could_not_attach(modes, place, candidates, pv):
    seen = situation(*modes, place=place, candidates=tuple(candidates), pv=pv)
    files = decided(seen)
    assert {mount["name"] for mount in files.mounts} == {each["name"] for each in files.volumes}
    assert bool(files.mounts) == (files.way == "mount")
    if files.way == "mirror":
        assert not files.node
        return
    zone = pv and pv["spec"].get("nodeAffinity")
    wanted = zone and zone["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0]
    reach = [c for c in candidates if not wanted or c.labels["zone"] == wanted]
    assert reach
    assert set(modes) & {RWX, RWO, ROX}
    if RWX not in modes and RWO in modes:
        assert files.node == place.name
        assert files.node in {c.name for c in reach}
    else:
        assert not files.node
